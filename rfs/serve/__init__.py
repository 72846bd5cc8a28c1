"""A policy over HTTP, for other programs: the clients of Tinker, OpenAI and verifiers.

Follow one request:

    app.py       routes, who may come in, and error messages
    body.py      JSON, checked           messages.py  protobuf, by hand
    openai.py    OpenAI's API, and tokens in, tokens out: its three calls take one path
        openai_bodies.py  which options they may have; what else changes answers is refused
        asked.py          a call's prompts, as tokens
        choices.py        its answers, written whole or piece by piece
        said.py           an answer as a message: thought, words, calls of tools
    tinker.py    Tinker's API
        tinker_bodies.py  what its calls may have
        data.py           a datum as a rollout, a loss by name
    promises.py  results that wait to be fetched
    models.py    what is served: bases, models in training with their saves, samplers
    worker.py    the one thread that computes
    open_batch.py  requests join a batch that is being sampled
    watch.py, page.py   what each forward_backward did to each token, as a page

Behind it are the verbs of policy.py and the batches of sampling.py: no second trainer or sampler.
"""
