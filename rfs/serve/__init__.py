"""A policy over HTTP, for other programs: the clients of Tinker, OpenAI and verifiers.

Follow one request:

    app.py       routes, access control, error responses
    body.py      JSON, validated         messages.py  protobuf, by hand
    openai.py    OpenAI's API, and tokens in, tokens out: its three calls take one path
        openai_bodies.py  their options; an option that would change answers unnoticed is refused
        openai_call.py    a call's prompts, as tokens
        choices.py        its answers, written whole or piece by piece
        answer_parts.py   an answer's thought, text and tool calls
    tinker.py    Tinker's API
        tinker_bodies.py  the fields of its calls
        data.py           a datum as a rollout, a loss by name
        prompt_scores.py  how likely a prompt's tokens are
    promises.py  results that wait to be fetched
    models.py    what is served: bases, models in training with their saves, samplers
    worker.py    the one thread that computes
    open_batch.py  requests join a batch that is being sampled
    recent_calls.py, page.py   what each forward_backward did to each token, as a page

Behind it are the verbs of policy.py and the batches of sampling.py: no second trainer or sampler.
"""
