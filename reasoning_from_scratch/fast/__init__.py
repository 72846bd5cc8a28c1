"""Engines that compute the same, faster: C, CUDA graphs, top-p unsorted, what answers share once.

The loop knows only the plain versions; `run/` hands these in. Start with packed.py, which
computes what logprobs.py does without padding (compiled.py is for --compile), then decoding.py.

Who takes the decoding steps, `decoding.decoder_for` finds from the model and where it lies:

    on a CPU, a model that decode.c knows, a C compiler     CompiledDecoder (decoding.py, decode.c)
    on a CUDA GPU, a model that graphs.py knows             GraphDecoder (graphs.py)
    other devices, hooks, weights in slices, short jobs     Decoder: the model's own operations

The first two keep copies of the weights, so a decoder is made anew for each `generate`; a training
run keeps a GraphDecoder and tells it of new weights (KeptRecordings). Both hand over to the third,
with one warning, where they find no memory or no support while they work.
"""
