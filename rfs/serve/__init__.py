"""A policy over HTTP, for other programs: the clients of Tinker, OpenAI and verifiers.

Follow one request:

    app.py       routes, who may come in, and error messages
    tinker.py    Tinker's API            openai.py    OpenAI's API, and tokens in, tokens out
    body.py      JSON, checked           messages.py  protobuf, by hand
    allowed.py   which options a call may have; whatever else changes answers is refused
    said.py      an answer as a message: thought, words, calls of tools
    data.py      a datum as a rollout, a loss by name
    promises.py  results that wait to be fetched
    models.py    what is served: bases, models in training with their saves, samplers
    worker.py    the one thread that computes
    open_batch.py  requests join a batch that is being sampled
    watch.py, page.py   what each forward_backward did to each token, as a page

Behind it are the verbs of policy.py and the batches of sampling.py: no second trainer or sampler.
"""
