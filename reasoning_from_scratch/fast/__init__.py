"""Engines that compute the same, faster: C, CUDA graphs, top-p without sorting, no padding.

The loop knows only the plain versions; `run/` passes these in. Start with packed.py, which
computes what logprobs.py does without padding (compiled.py is for --compile), then decoding.py.

`decoding.decoder_for` chooses who takes the decoding steps, by the model and its device:

    on a CPU, a model that decode.c knows, a C compiler     CompiledDecoder (decoding.py, decode.c)
    on a CUDA GPU, a model that graphs.py knows             GraphDecoder (graphs.py)
    other devices, hooks, short jobs                        Decoder: the model's own operations

The first two keep copies of the weights, so each `generate` makes a new decoder; a training run
keeps its GraphDecoder and gives it the new weights (KeptRecordings). Both fall back to the third,
with one warning, if they run out of memory or something is not supported. bursts.py draws several
tokens on a GPU before anybody looks at them.
"""
