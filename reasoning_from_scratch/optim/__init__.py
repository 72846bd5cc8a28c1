"""Optimizers: AdamW whose small updates reach bfloat16 weights, Muon, and LoRA's additions.

The step calls `optimizer.step(lr)` and knows no more of them. Start with adamw.py.
"""
