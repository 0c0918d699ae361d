"""Regular languages over code points: what regexes, lengths, numbers and formats are made of.

::

    syntax.py (python_syntax, ecma_syntax)   pattern -> nodes
    nodes.py, factory.py                     syntax, hash-consed: sets, words, sequences, counters, anchors
    terms.py                                 "this node, then the rest": partial derivatives
    states.py, languages.py                  positions: unions of terms, intersections and complements of positions
    emptiness.py                             which of those hold no string
    numbers.py, formats.py                   JSON numbers within bounds; the ``format`` names

Nothing is built up front: a position (:mod:`.language`) is worked out when its edges are asked for.
"""
