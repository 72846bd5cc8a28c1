"""Engines that compute the same, faster: C, CUDA graphs, top-p without sorting, no padding.

The loop knows only the plain versions; `run/` passes these in. Start with packed.py, which
computes what logprobs.py does without padding (compiled.py is for --compile), then decoding.py.

`decoding.decoder_for` chooses who takes the decoding steps, by the model and its device:

    on a CPU, a model that decode.c knows, a C compiler     CompiledDecoder (decoding.py, decode.c)
    on a CUDA GPU, a model that graphs.py knows             GraphDecoder (graphs.py)
    other devices, hooks, short jobs                        Decoder: the model's own operations

The first two keep copies of the weights, so each `generate` makes a new decoder; a training run
keeps its GraphDecoder and gives it the new weights (RecordingCache), and frozen weights are packed
for C only once. LoRA's small matrices stay by themselves in both. Both fall back to the third, with
one line that says why, if they run out of memory or do not know the model. From a wide vocabulary
on a CPU, tokens are drawn in C, too. bursts.py draws several tokens on a GPU before we look
at them. neighbors.py keeps torch's threads from blocking each other where another program has one
of the cores; memory.py says how many tokens fit into a pass, and keeps what tensors free for the
next ones. In bfloat16 on a CPU, attention's backward pass is that of narrow_attention.py.

With --sampling-weights int8, rollouts come from `decoding.int8_decoder_for`: a CompiledDecoder with
weights and inputs in 8 bits, or an error. Evaluations and log-probabilities never use it.
"""
