// What answers the model: the game of higher or lower, and how a game and a model talk. The rules
// and the names are those of environments/guess.py and environments/conversation.py.
"use strict";

// Answers a guess with higher or lower, until it is right.
class Guess {
  constructor(number, most) {
    Object.assign(this, { number, most, guesses: 0, found: false, legal: true });
    this.best = Math.floor(Math.log2(most)) || 1; // as many guesses as a plan needs
  }

  // null: it is over.
  reply(turn) {
    this.guesses++;
    const guess = turn.trim();
    if (!/^[0-9]+$/.test(guess) || Number(guess) < 1 || Number(guess) > this.most) {
      this.legal = false;
      return null;
    }
    this.found = Number(guess) === this.number;
    if (this.found) return null;
    return Number(guess) < this.number ? "higher" : "lower";
  }

  rewards() {
    const in_time = this.found && this.guesses <= this.best;
    const speed = this.found ? Math.max(0, 1 - (this.guesses - 1) / (2 * this.best)) : 0;
    return { correct: Number(in_time), speed, legal: Number(this.legal) };
  }
}

// Speaks for an environment: hears the model's tokens, and says tokens.
class Conversation {
  // limits: {max_turns, max_turn_tokens}. speech: {reply, end_of_turn}, the texts around a reply
  // and the token that ends a turn.
  constructor(environment, tokenizer, limits, speech) {
    Object.assign(this, { environment, tokenizer, limits, speech, turns: 0, turn_start: 0 });
    this.said = []; // {text, reply, start} of each turn that is over; it starts at this token
  }

  // After each token that was drawn: the tokens that follow; [] if none do, null ends the answer.
  hear(response_ids, stopped) {
    const turn = response_ids.slice(this.turn_start, response_ids.length - stopped);
    const { max_turns, max_turn_tokens } = this.limits;
    const is_cut = max_turn_tokens > 0 && turn.length >= max_turn_tokens;
    if (!stopped && !is_cut) return [];
    const text = this.tokenizer.decode(turn), reply = this.environment.reply(text);
    this.turns++;
    this.said.push({ text, reply, start: this.turn_start });
    if (reply === null || this.turns === max_turns) return null;
    const [before, after] = this.speech.reply;
    const ended = stopped ? [] : [this.speech.end_of_turn];
    const ids = [...ended, ...this.tokenizer.encode(before + reply + after)];
    this.turn_start = response_ids.length + ids.length;
    return ids;
  }
}
