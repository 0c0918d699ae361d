"""The computing side of the engine. ``python -P -m plait.runtime.core`` runs it as a process.

::

    loop ── core ──┬── inbox       what the front asks
                   ├── schedule    Preempt, Continue, Admit: what runs in this step (capacity: what fits)
                   ├── compute     Forward, Deliver: run the model, hand out its logits
                   └── outbox      what the front is told
    state     strands, pool, tree; how an op begins, ends, fails, is retracted
    gen, scoring, prompt_scores, forking     the four ops that need the model (prefill: their rows; account: their cost)
    sequence  one strand's ids and slots: every way a slot changes hands
    sampler, noise, filters, logprobs, stops, choices, trie     pure functions and small state, no scheduling
"""
