"""What a text must be -> which tokens may come next. Knows vocabularies and bytes, no models and no torch.

::

    spec.py  plain data      ┌ regular/   a regex: a language of code points, unfolded on demand
      │                      ├ schema/    a JSON Schema: what each keyword asserts, and the texts that satisfy it
      ├─> parts of all kinds ┤
      │                      └ grammar/   GBNF, EBNF, Lark, ready grammars
      v
    pushdown/rules.py        context-free rules over lexemes (regular languages, raw or as the inside of a JSON string)
      │
      v
    pushdown/machine.py      sets of stacks, determinized byte by byte; native_machine.py is the same in C++
      │   lexicon.py         what all constraints of a vocabulary share: languages, byte rows, token masks
      v
    pushdown/matcher.py      one sequence's position: mask, advance, forced, rollback (interface.py); jump.py: which
                             tokens of a forced run are settled

    compiler.py              the verdict on a specification, given in a child process (compiler_child.py), and the
                             constraint in the core
    backends/                llguidance, xgrammar and outlines-core behind the same interface
    report.py, picture.py    what ``plait check-schema`` says and draws
    vocabulary.py, trie.py   token ids as bytes, and all of them as one tree
"""
