"""A policy over HTTP, for programs that are not ours: Tinker's client, OpenAI's, verifiers'.

Follow one request:

    app.py       whose call a path is, who may come in, what is said of a mistake
    tinker.py    Tinker's words          openai.py    OpenAI's words, and tokens in, tokens out
    body.py      JSON, read with care    messages.py  protobuf, by hand
    data.py      a datum as a rollout, a loss by name
    promises.py  results that wait to be fetched
    models.py    what is served: bases, models in training with their saves, samplers
    engine.py    the one thread that computes
    open_batch.py  requests join a batch that is being drawn
    watch.py, page.py   what each forward_backward did to each token, as a page

Behind it are the verbs of policy.py, the batches of sampling.py, and no other trainer or sampler.
"""
