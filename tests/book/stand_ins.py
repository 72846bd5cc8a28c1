"""Stand-ins for model and tokenizer that several chapters are tested with."""

import math

import torch


class Counter:
    """A stand-in: predicts the successor of the last token, whatever came before."""

    cfg = {"n_layers": 1}

    def __init__(self):
        self.seen, self.resets = [], 0

    def reset_kv_cache(self):
        self.resets += 1

    def __call__(self, token_ids, cache=None):
        self.seen.append(token_ids.shape[1])
        return torch.nn.functional.one_hot((token_ids + 1) % 10, 10).float() * 9


class Letters:
    """A stand-in: token 0 is a, 1 is b, and so on; j ends the text."""

    eos_token_id = 9

    def encode(self, text):
        return ["abcdefghij".index(letter) for letter in text]

    def decode(self, ids):
        return "".join("abcdefghij"[i] for i in ids)


CHAIN = ":\\boxed{7}\0"  # each letter follows the one before; no letter comes twice


class LetterTokenizer:
    eos_token_id = 0

    def encode(self, text):
        return [ord(letter) % 128 for letter in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


class Wrapping(LetterTokenizer):
    """One that makes each prompt a turn of a chat."""

    def encode(self, text, chat_wrapped=None):
        return super().encode(text if chat_wrapped is False else f":{text}!")


class Answers(LetterTokenizer):
    """Whatever a model writes reads as these texts, one after the other."""

    eos_token_id = None

    def __init__(self, *texts):
        self.texts, self.asked = iter(texts), []

    def encode(self, text):
        self.asked.append(text)
        return [0]

    def decode(self, ids):
        self.asked.append(len(ids))
        return next(self.texts)


class ChainModel:
    """After ":" it writes \\boxed{7}. The next letter has probability 0.9, the rest share 0.1."""

    cfg = {"n_layers": 1}

    def __init__(self):
        self.following = torch.zeros(128, dtype=torch.long)
        for letter, after in zip(CHAIN, CHAIN[1:], strict=False):
            self.following[ord(letter)] = ord(after)
        self.resets = 0

    def reset_kv_cache(self):
        self.resets += 1

    def __call__(self, token_ids, cache=None):
        logits = torch.full((*token_ids.shape, 128), math.log(0.1 / 127))
        return logits.scatter(-1, self.following[token_ids][..., None], math.log(0.9))
