// Made by make_museum.py: what museum.py trained, and the words of its notebook.
const MUSEUM = {
 "labels": {
  "env/all/reward/total": "reward",
  "right": "share of correct rollouts",
  "eval_acc": "held-out accuracy",
  "env/all/ac_tokens_per_turn": "tokens per answer",
  "optim/token_entropy": "entropy (nats per token)",
  "kl_policy_base": "KL from the reference, k1 (nats)",
  "env/all/by_group/frac_mixed": "groups with a signal (share)"
 },
 "rooms": {
  "1": {
   "lead": "The reward hardly changes. Look at the answers, and at how they end.",
   "choices": {
    "a": "The learning rate is too low.",
    "b": "Long answers are cut off before their end.",
    "c": "The problems are too hard for this model.",
    "d": "The reward does not require a correct answer."
   },
   "said": {
    "a": "With too low a learning rate every curve would stay where it was. Here the length changes, so something is being learned.",
    "b": "Yes. A solution of two lines or more is cut off before its box, and its reward is 0. Only guesses and solutions of a single line are still rewarded.",
    "c": "There are groups with a signal, so some of the answers are correct. And the same model learns these problems elsewhere.",
    "d": "Then the reward would rise while the share of correct answers falls. Here the two are the same curve."
   },
   "truth": "b",
   "repair": "max_new_tokens = 24, repaired to max_new_tokens = 160",
   "seen": [
    "The limit was 24 tokens. A solution of three lines needs about twice as many, so it never reaches its box and is never rewarded. The only rewarded answers are solutions of a single line and, now and then, a lucky guess. These one-line solutions teach the model to write steps on every problem. As a result more and more answers are cut off, and the alarm for the length limit goes off, with both seeds. When an alarm goes off, rfs train also prints its usual cause. Here the usual cause, too small a limit, is also the true one.",
    "If you look only at the reward, you search for the fault in the model. The fault is in the configuration, and the answers show it at a glance."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ 0.0, 0.07812, 0.09375, 0.0, 0.01562, 0.15625, 0.17188, 0.14062, 0.09375, 0.04688, 0.04688, 0.125, 0.15625, 0.0, 0.0625, 0.09375, 0.07812, 0.0, 0.0625, 0.0 ],
     "right": [ 0.0, 0.07812, 0.09375, 0.0, 0.01562, 0.15625, 0.17188, 0.14062, 0.09375, 0.04688, 0.04688, 0.125, 0.15625, 0.0, 0.0625, 0.09375, 0.07812, 0.0, 0.0625, 0.0 ],
     "env/all/ac_tokens_per_turn": [ 11.73438, 11.3125, 11.98438, 10.60938, 11.9375, 11.10938, 13.42188, 12.34375, 14.9375, 13.53125, 14.01562, 12.51562, 11.14062, 15.76562, 15.25, 15.625, 17.0625, 16.54688, 16.8125, 18.98438 ],
     "optim/token_entropy": [ 0.21963, 0.17833, 0.22672, 0.18481, 0.20416, 0.14101, 0.13323, 0.17493, 0.14921, 0.17055, 0.14552, 0.15525, 0.15702, 0.16553, 0.17366, 0.16043, 0.11951, 0.16654, 0.13302, 0.17294 ],
     "env/all/by_group/frac_mixed": [ 0.0, 0.25, 0.125, 0.0, 0.125, 0.125, 0.375, 0.375, 0.375, 0.25, 0.125, 0.25, 0.125, 0.0, 0.25, 0.375, 0.125, 0.0, 0.25, 0.0 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 65 = 360 + 30 = 390",
      "paid": 0.0,
      "cut": true
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "Let's see.\nKim: 23 - 9 = 12? No, 14\nOlga",
      "paid": 0.0,
      "cut": true
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "Let's see.\nflowers: 2 * 19 = 20 + 18 = 38",
      "paid": 0.0,
      "cut": true
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "right": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 16.70312, 23.53125, 23.625, 26.70312, 24.15625, 27.90625, 24.59375, 31.14062, 26.17188, 28.51562, 35.26562, 28.89062, 39.375, 51.34375, 46.125, 48.54688, 45.85938, 44.96875, 58.75 ],
     "optim/token_entropy": [ 0.15821, 0.14167, 0.14398, 0.12644, 0.13024, 0.11462, 0.10396, 0.113, 0.10186, 0.11163, 0.09473, 0.09069, 0.09669, 0.08982, 0.07114, 0.09301, 0.0694, 0.0693, 0.06345, 0.07799 ],
     "env/all/by_group/frac_mixed": [ 0.875, 0.875, 0.875, 0.875, 1.0, 0.75, 1.0, 0.875, 1.0, 1.0, 1.0, 1.0, 0.875, 0.75, 0.875, 0.875, 1.0, 1.0, 0.625, 0.875 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 65 = 360 + 30 = 390\n390 + 160 = 550\n\\boxed{550}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "Let's see.\nKim: 23 - 9 = 12? No, 14\nOlga: 3 * 14 = 30 + 12 = 42? Yes\nGina: 42 - 17 = 25? Yes\nBen: 25 + 38 = 63? Yes\n\\boxed{63}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "Let's see.\nflowers: 2 * 19 = 20 + 18 = 38\n200 - 191 = 9\n\\boxed{9}",
      "paid": 0.0,
      "cut": false
     }
    ]
   }
  },
  "2": {
   "lead": "In this run the reward is a little better at the end than at the start. What about the other curves?",
   "choices": {
    "a": "The learning rate is too high.",
    "b": "Answers are cut off before their end.",
    "c": "The problems have become too easy.",
    "d": "A part of the reward does not require a correct answer."
   },
   "said": {
    "a": "A learning rate that is too high ruins the reward, too. This reward is no worse at the end than at the start.",
    "b": "Look at the last lines of the answers: each answer ends by itself.",
    "c": "The problems are those of every other room.",
    "d": "Yes. Each character costs a sixtieth, so full solution steps cost more than a correct answer brings. The cheapest answer is a guess, and training found it."
   },
   "truth": "d",
   "repair": "reward = museum.py:brief_reward, repaired to reward = None",
   "seen": [
    "Somebody wanted short answers and subtracted a sixtieth of a reward point for each character. On most problems full solution steps then cost more than the reward for a correct answer, so a bare box is the safe choice. Nobody told the model; it found out. The reward rises a little while correct answers become rare. This is reward hacking, and the curve of the reward does not show it.",
    "No alarm went off. The alarm for this case, reward_without_accuracy, compares the reward with held-out accuracy, and this run did not measure any. Greedy accuracy would not have fallen anyway, since with greedy decoding tiny-base guesses from the start. If a part of the reward does not depend on correctness, draw it as a separate curve."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ -0.2388, -0.125, -0.22943, -0.23021, -0.32187, -0.15182, -0.225, -0.07005, -0.18854, -0.24036, -0.21302, -0.17708, 0.01641, -0.23411, -0.18932, -0.24063, -0.22344, -0.14531, -0.1625, -0.17865 ],
     "right": [ 0.20312, 0.28125, 0.28125, 0.125, 0.125, 0.14062, 0.20312, 0.20312, 0.125, 0.07812, 0.0625, 0.03125, 0.25, 0.03125, 0.0, 0.03125, 0.07812, 0.07812, 0.0625, 0.0 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 15.57812, 20.5, 14.10938, 17.57812, 10.82812, 16.59375, 10.73438, 11.51562, 12.5, 10.60938, 7.75, 8.60938, 10.04688, 6.92188, 10.21875, 11.46875, 8.34375, 8.29688, 6.45312 ],
     "optim/token_entropy": [ 0.15821, 0.13451, 0.16284, 0.16303, 0.15385, 0.17852, 0.11386, 0.19963, 0.14673, 0.16598, 0.16136, 0.18038, 0.16078, 0.16975, 0.27918, 0.18485, 0.13163, 0.21377, 0.16535, 0.25499 ],
     "env/all/by_group/frac_mixed": [ 1.0, 1.0, 1.0, 0.875, 1.0, 0.875, 1.0, 0.875, 0.875, 0.75, 0.875, 0.75, 0.625, 0.75, 0.375, 0.625, 0.75, 0.875, 0.75, 0.375 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "\\boxed{6}",
      "paid": -0.17,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "\\boxed{5}",
      "paid": -0.17,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "\\boxed{}",
      "paid": -0.15,
      "cut": false
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "right": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 16.70312, 23.53125, 23.625, 26.70312, 24.15625, 27.90625, 24.59375, 31.14062, 26.17188, 28.51562, 35.26562, 28.89062, 39.375, 51.34375, 46.125, 48.54688, 45.85938, 44.96875, 58.75 ],
     "optim/token_entropy": [ 0.15821, 0.14167, 0.14398, 0.12644, 0.13024, 0.11462, 0.10396, 0.113, 0.10186, 0.11163, 0.09473, 0.09069, 0.09669, 0.08982, 0.07114, 0.09301, 0.0694, 0.0693, 0.06345, 0.07799 ],
     "env/all/by_group/frac_mixed": [ 0.875, 0.875, 0.875, 0.875, 1.0, 0.75, 1.0, 0.875, 1.0, 1.0, 1.0, 1.0, 0.875, 0.75, 0.875, 0.875, 1.0, 1.0, 0.625, 0.875 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 65 = 360 + 30 = 390\n390 + 160 = 550\n\\boxed{550}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "Let's see.\nKim: 23 - 9 = 12? No, 14\nOlga: 3 * 14 = 30 + 12 = 42? Yes\nGina: 42 - 17 = 25? Yes\nBen: 25 + 38 = 63? Yes\n\\boxed{63}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "Let's see.\nflowers: 2 * 19 = 20 + 18 = 38\n200 - 191 = 9\n\\boxed{9}",
      "paid": 0.0,
      "cut": false
     }
    ]
   }
  },
  "3": {
   "lead": "This run has the usual limit, 160 tokens, and the usual reward: 1 for a correct answer.",
   "choices": {
    "a": "Answers run into the length limit.",
    "b": "The entropy has collapsed.",
    "c": "The sampler does not draw from the policy that is trained.",
    "d": "Guesses get more reward than full solutions."
   },
   "said": {
    "a": "All of these answers are short and end by themselves.",
    "b": "The entropy was as low at the first step. And the model has hardly changed since: hardly any group had a signal, so there was hardly any update.",
    "c": "Yes. The sampler drew from the most likely tokens only, up to a total probability of 0.6, and the token that begins a solution is not among them. What is never sampled is never rewarded.",
    "d": "A guess is rewarded as everywhere: 1 if it is correct. No style of answer gets more here, because these rollouts contain no other style."
   },
   "truth": "c",
   "repair": "top_p = 0.6, repaired to top_p = 1.0",
   "seen": [
    "The sampler drew with top-p 0.6. At the first token of an answer, that leaves only the token that starts a guess, because three answers in four are guesses. All rollouts of a group were therefore guesses, mostly the same guess. Hardly any group had a signal, and the model hardly changed. What is never sampled is never rewarded.",
    "Two alarms went off. sampler_gap went off at the first step, with both seeds: the trainer computed log-probabilities under the whole distribution, so sampler and trainer were two different policies. no_signal went off after ten steps without a signal, with one of the two seeds. The usual cause of no_signal, problems that are too hard, is not the cause here. By default, a run that samples with top-p remembers which tokens were cut and computes its log-probabilities over the remaining ones (keep_sampling_mask). We turned that off here; with it, the first alarm would be silent, and the run would learn just as little."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ 0.0, 0.125, 0.125, 0.0, 0.0, 0.125, 0.125, 0.125, 0.0, 0.0, 0.0, 0.125, 0.125, 0.0, 0.0, 0.03125, 0.0, 0.01562, 0.0, 0.0 ],
     "right": [ 0.0, 0.125, 0.125, 0.0, 0.0, 0.125, 0.125, 0.125, 0.0, 0.0, 0.0, 0.125, 0.125, 0.0, 0.0, 0.03125, 0.0, 0.01562, 0.0, 0.0 ],
     "env/all/ac_tokens_per_turn": [ 6.73438, 6.64062, 6.5, 6.125, 6.64062, 6.375, 7.3125, 6.82812, 6.5, 9.21875, 6.35938, 6.5, 6.25, 6.625, 6.35938, 6.65625, 6.375, 6.4375, 6.70312, 6.53125 ],
     "optim/token_entropy": [ 0.09568, 0.04409, 0.10056, 0.04605, 0.10616, 0.02681, 0.02365, 0.0466, 0.05339, 0.04323, 0.05931, 0.03675, 0.05301, 0.0849, 0.11181, 0.11244, 0.02656, 0.11786, 0.04802, 0.10761 ],
     "env/all/by_group/frac_mixed": [ 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.125, 0.0, 0.125, 0.0, 0.0 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "\\boxed{16}",
      "paid": 0.0,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "\\boxed{4}",
      "paid": 0.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "\\boxed{5}",
      "paid": 0.0,
      "cut": false
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "right": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 16.70312, 23.53125, 23.625, 26.70312, 24.15625, 27.90625, 24.59375, 31.14062, 26.17188, 28.51562, 35.26562, 28.89062, 39.375, 51.34375, 46.125, 48.54688, 45.85938, 44.96875, 58.75 ],
     "optim/token_entropy": [ 0.15821, 0.14167, 0.14398, 0.12644, 0.13024, 0.11462, 0.10396, 0.113, 0.10186, 0.11163, 0.09473, 0.09069, 0.09669, 0.08982, 0.07114, 0.09301, 0.0694, 0.0693, 0.06345, 0.07799 ],
     "env/all/by_group/frac_mixed": [ 0.875, 0.875, 0.875, 0.875, 1.0, 0.75, 1.0, 0.875, 1.0, 1.0, 1.0, 1.0, 0.875, 0.75, 0.875, 0.875, 1.0, 1.0, 0.625, 0.875 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 65 = 360 + 30 = 390\n390 + 160 = 550\n\\boxed{550}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "Let's see.\nKim: 23 - 9 = 12? No, 14\nOlga: 3 * 14 = 30 + 12 = 42? Yes\nGina: 42 - 17 = 25? Yes\nBen: 25 + 38 = 63? Yes\n\\boxed{63}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "Let's see.\nflowers: 2 * 19 = 20 + 18 = 38\n200 - 191 = 9\n\\boxed{9}",
      "paid": 0.0,
      "cut": false
     }
    ]
   }
  },
  "4": {
   "lead": "This run has a promising start.",
   "choices": {
    "a": "Rollouts are used after the policy has moved away from them.",
    "b": "Nothing is learned: the learning rate is too low.",
    "c": "Answers run into the length limit.",
    "d": "The reward does not require a correct answer."
   },
   "said": {
    "a": "Yes. Each batch is trained on four times, and the loss ignores that the policy has moved in between. Each pass makes the first pass's push again.",
    "b": "Then the run would write the same text, and get the same reward, as before.",
    "c": "The limit is 160 tokens. These answers are far from it.",
    "d": "The reward is that of most other runs: 1 for a correct answer, else 0."
   },
   "truth": "a",
   "repair": "objective = reinforce, repaired to objective = ppo",
   "seen": [
    "The run made four updates per batch with an objective that has no ratio: advantage times log-probability, as if each pass had fresh rollouts. The repaired run makes the same number of updates at the same learning rate, with the clipped ratio. Both begin alike. Then the run without the ratio keeps pushing where the clip would have stopped, and loses half of what it had gained.",
    "No alarm exists for this failure. Two measurements would have shown it: the largest ratio, which the log calls optim/ratio_max, and how far the policy moves per batch (section 7.3)."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.46875, 0.60938, 0.64062, 0.46875, 0.64062, 0.60938, 0.29688, 0.46875, 0.25, 0.42188, 0.40625, 0.32812 ],
     "right": [ 0.20312, 0.46875, 0.60938, 0.64062, 0.46875, 0.64062, 0.60938, 0.29688, 0.46875, 0.25, 0.42188, 0.40625, 0.32812 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 26.89062, 48.07812, 43.34375, 53.09375, 46.875, 48.67188, 52.28125, 52.0625, 57.64062, 55.84375, 63.8125, 70.51562 ],
     "optim/token_entropy": [ 0.15821, 0.0952, 0.07205, 0.0734, 0.09217, 0.06537, 0.06723, 0.09048, 0.08866, 0.09461, 0.06727, 0.09138, 0.08435 ],
     "env/all/by_group/frac_mixed": [ 0.875, 1.0, 0.875, 0.75, 0.875, 0.5, 0.625, 0.375, 0.75, 0.875, 0.75, 0.75, 0.625 ]
    },
    "answers": [
     {
      "problem": "Find the average of 34, 49, 31 and 46.",
      "answer": "40",
      "text": "Let's see.\n34 + plums: 34 + 49 = 83? No, 83\n83 + 31 = 114? No, 114\n114 + 46 = 160? Yes\n160 / 4 = 40? Yes\n\\boxed{40}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "A field is 6 m long and 11 m wide. Each m of fence costs 4 dollars. How many dollars does a fence around the field cost?",
      "answer": "136",
      "text": "Let's see.\n6 * 11 = 66? Yes\n2 * 66 = 120 + 12 = 132? Yes\n4 * 13 = 40 + 12 = 52? Yes\n132 + 52 = 184? No, 184\n\\boxed{184}",
      "paid": 0.0,
      "cut": false
     },
     {
      "problem": "15 stamps are packed in boxes of 3. How many are left over?",
      "answer": "0",
      "text": "Let's see.\n3 * 6 = 18\n15 - 18 = 7\n\\boxed{7}",
      "paid": 0.0,
      "cut": false
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.46875, 0.53125, 0.54688, 0.625, 0.76562, 0.79688, 0.6875, 0.625, 0.8125, 0.84375, 0.70312, 0.75 ],
     "right": [ 0.20312, 0.46875, 0.53125, 0.54688, 0.625, 0.76562, 0.79688, 0.6875, 0.625, 0.8125, 0.84375, 0.70312, 0.75 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 26.46875, 44.0625, 40.76562, 46.90625, 42.03125, 42.375, 43.92188, 43.71875, 44.48438, 46.04688, 48.51562, 47.0 ],
     "optim/token_entropy": [ 0.15821, 0.10417, 0.09861, 0.0807, 0.07325, 0.0653, 0.05759, 0.06246, 0.07094, 0.06211, 0.05137, 0.06813, 0.04924 ],
     "env/all/by_group/frac_mixed": [ 0.875, 1.0, 1.0, 0.875, 0.875, 0.625, 0.625, 0.75, 0.875, 0.625, 0.5, 0.875, 0.625 ]
    },
    "answers": [
     {
      "problem": "Find the average of 34, 49, 31 and 46.",
      "answer": "40",
      "text": "Let's see.\n34 +  = 37? Yes\n37 + 31 = 68? Yes\n68 + 31 = 99? Yes\n99 / 4 = 24? Yes\n\\boxed{24}",
      "paid": 0.0,
      "cut": false
     },
     {
      "problem": "A field is 6 m long and 11 m wide. Each m of fence costs 4 dollars. How many dollars does a fence around the field cost?",
      "answer": "136",
      "text": "Let's see.\n6 + 11 = 17? Yes\n2 * 17 = 20 + 14 = 34? Yes\n4 * 34 = 120 + 16 = 136? Yes\n\\boxed{136}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "15 stamps are packed in boxes of 3. How many are left over?",
      "answer": "0",
      "text": "Let's see.\n3 * 5 = 15\n15 - 15 = 0\n\\boxed{0}",
      "paid": 1.0,
      "cut": false
     }
    ]
   }
  },
  "5": {
   "lead": "Over twenty steps the curves wander without going anywhere.",
   "choices": {
    "a": "The problems are too hard for this model.",
    "b": "The weights hardly move.",
    "c": "The sampler does not draw from the policy that is trained.",
    "d": "A penalty keeps the model close to its start."
   },
   "said": {
    "a": "One answer in five is correct from the start, and most groups have a signal. There is enough to learn from.",
    "b": "Yes. 1e-6 is a good learning rate for Qwen3-0.6B, and far too low for this model.",
    "c": "Then an alarm would have gone off at the first step. And the rollouts here contain all styles of answer.",
    "d": "With a KL penalty there would be one more curve here: the distance from the reference. This run has none."
   },
   "truth": "b",
   "repair": "lr = 1e-06, repaired to lr = 0.0003",
   "seen": [
    "The learning rate was 1e-6. That is a usual value for Qwen3-0.6B, and if you copy a command meant for that model, you get this run. Its reward goes up and down because some problems are easier than others, not because anything is learned. The other seed goes up and down in other places.",
    "No alarm went off. The alarm hardly_moves looks at the size of an update relative to the weights. Here the updates were not small enough for it; with a tenth of this learning rate they would have been. What remains is to try other learning rates. The next cell tries four more, with one seed each. The first point is this room's run, and the others differ from it only in the learning rate."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.28125, 0.25, 0.15625, 0.14062, 0.25, 0.35938, 0.32812, 0.29688, 0.20312, 0.21875, 0.1875, 0.1875, 0.14062, 0.14062, 0.15625, 0.23438, 0.15625, 0.125, 0.15625 ],
     "right": [ 0.20312, 0.28125, 0.25, 0.15625, 0.14062, 0.25, 0.35938, 0.32812, 0.29688, 0.20312, 0.21875, 0.1875, 0.1875, 0.14062, 0.14062, 0.15625, 0.23438, 0.15625, 0.125, 0.15625 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 15.70312, 21.6875, 16.29688, 18.70312, 16.07812, 21.89062, 16.0625, 17.92188, 16.39062, 16.40625, 11.59375, 10.6875, 19.375, 18.20312, 13.23438, 21.67188, 13.98438, 11.10938, 20.34375 ],
     "optim/token_entropy": [ 0.15821, 0.13828, 0.15362, 0.15484, 0.17054, 0.13018, 0.12279, 0.14732, 0.13518, 0.15868, 0.15016, 0.16736, 0.18383, 0.15828, 0.16524, 0.23106, 0.11442, 0.21606, 0.17846, 0.18618 ],
     "env/all/by_group/frac_mixed": [ 0.875, 0.875, 0.625, 0.75, 0.625, 0.75, 0.875, 0.875, 1.0, 0.75, 0.875, 0.5, 0.375, 0.625, 0.75, 0.75, 0.75, 0.625, 0.75, 0.875 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 65 = 360 + 30 = 390\n390 + 160 = 550\n\\boxed{550}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "\\boxed{4}",
      "paid": 0.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "\\boxed{8}",
      "paid": 0.0,
      "cut": false
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "right": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 16.70312, 23.53125, 23.625, 26.70312, 24.15625, 27.90625, 24.59375, 31.14062, 26.17188, 28.51562, 35.26562, 28.89062, 39.375, 51.34375, 46.125, 48.54688, 45.85938, 44.96875, 58.75 ],
     "optim/token_entropy": [ 0.15821, 0.14167, 0.14398, 0.12644, 0.13024, 0.11462, 0.10396, 0.113, 0.10186, 0.11163, 0.09473, 0.09069, 0.09669, 0.08982, 0.07114, 0.09301, 0.0694, 0.0693, 0.06345, 0.07799 ],
     "env/all/by_group/frac_mixed": [ 0.875, 0.875, 0.875, 0.875, 1.0, 0.75, 1.0, 0.875, 1.0, 1.0, 1.0, 1.0, 0.875, 0.75, 0.875, 0.875, 1.0, 1.0, 0.625, 0.875 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 65 = 360 + 30 = 390\n390 + 160 = 550\n\\boxed{550}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "Let's see.\nKim: 23 - 9 = 12? No, 14\nOlga: 3 * 14 = 30 + 12 = 42? Yes\nGina: 42 - 17 = 25? Yes\nBen: 25 + 38 = 63? Yes\n\\boxed{63}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "Let's see.\nflowers: 2 * 19 = 20 + 18 = 38\n200 - 191 = 9\n\\boxed{9}",
      "paid": 0.0,
      "cut": false
     }
    ]
   }
  },
  "6": {
   "lead": "You may have met a run like this one.",
   "choices": {
    "a": "Each update goes too far.",
    "b": "Stale rollouts are used again.",
    "c": "Answers are cut off before their end.",
    "d": "The reward does not require a correct answer."
   },
   "said": {
    "a": "Yes. The first steps go in the right direction, and each goes much too far.",
    "b": "One update per batch: each rollout is used once, by the policy that drew it.",
    "c": "In room 1 correct answers needed more room than the limit gave. Here the limit is ample: the answers were short at the beginning, and only later grew into it.",
    "d": "The reward counts correct answers and nothing else, and here it ends at 0."
   },
   "truth": "a",
   "repair": "lr = 0.002, repaired to lr = 0.0003",
   "seen": [
    "The learning rate was 2e-3, as in section 7.1. The run begins better than the repaired one, and ends with no correct answers. The alarm names a symptom, answers without end. Its usual cause, a limit that is too small, does not apply here, and nothing in the reward favors long answers.",
    "Rooms 5 and 6 have the same fault in opposite directions, and the repaired run is the same in both. The sick runs' learning rates differ by a factor of 2,000. As the sweep showed, only in a small part of that range does a model learn much in twenty steps."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.48438, 0.48438, 0.39062, 0.17188, 0.25, 0.07812, 0.125, 0.0625, 0.03125, 0.0, 0.0, 0.03125, 0.0, 0.0, 0.01562, 0.0, 0.0, 0.0, 0.0 ],
     "right": [ 0.20312, 0.48438, 0.48438, 0.39062, 0.17188, 0.25, 0.07812, 0.125, 0.0625, 0.03125, 0.0, 0.0, 0.03125, 0.0, 0.0, 0.01562, 0.0, 0.0, 0.0, 0.0 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 27.07812, 48.84375, 45.04688, 60.90625, 52.73438, 71.54688, 71.53125, 88.01562, 82.8125, 129.78125, 102.375, 103.65625, 108.875, 132.01562, 114.95312, 126.90625, 133.03125, 117.5625, 136.15625 ],
     "optim/token_entropy": [ 0.15821, 0.10095, 0.09117, 0.09905, 0.13582, 0.11672, 0.19971, 0.22999, 0.22506, 0.2183, 0.2292, 0.25595, 0.24087, 0.25494, 0.22112, 0.26262, 0.25477, 0.24343, 0.23386, 0.26755 ],
     "env/all/by_group/frac_mixed": [ 0.875, 1.0, 0.875, 0.875, 0.5, 0.625, 0.25, 0.0, 0.25, 0.125, 0.0, 0.0, 0.25, 0.0, 0.0, 0.125, 0.0, 0.0, 0.0, 0.0 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 6 * 60686? No, 6360 + 6 * 6 * 606 *6 *606003? No, 636? No, 66 *600 +1? No, 6660? No, 666? No, 666? No, 666? Yes\n660 + 660 = 960? No, 6606? No, 666? No, 666? Yes\n6600 + 660%: 6606? No, 6666 +6666",
      "paid": 0.0,
      "cut": true
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "Let's see.\nKim: 2 * 18 = 20 + 16 = 36\nBen: 18 + 3 = 266? No, 12\nGina: 12 - 17 = 5? Yes\nBen: 5 + 38 = 49? No, 44/3? No, 32/3? No, 3}",
      "paid": 0.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "Let's see.\nflowers: 6 * 110? No, 6 - 126 = 4? Yes\npens: 2 * 19? No, 6 * 10? No, 24/18? Yes\n4 + 6 = 10? No, 10? No, 10? No, 16? No, 16? No, 6? Yes\n10 + 6 = 16? No, 16? Yes\n16 + 16 = 46? No, 46? No, 6? Yes\n46 + 6 = 66? No, 16? Yes\n\\boxed{",
      "paid": 0.0,
      "cut": true
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "right": [ 0.20312, 0.29688, 0.29688, 0.29688, 0.28125, 0.42188, 0.46875, 0.46875, 0.625, 0.39062, 0.5625, 0.48438, 0.5, 0.46875, 0.64062, 0.60938, 0.57812, 0.60938, 0.76562, 0.57812 ],
     "env/all/ac_tokens_per_turn": [ 17.875, 16.70312, 23.53125, 23.625, 26.70312, 24.15625, 27.90625, 24.59375, 31.14062, 26.17188, 28.51562, 35.26562, 28.89062, 39.375, 51.34375, 46.125, 48.54688, 45.85938, 44.96875, 58.75 ],
     "optim/token_entropy": [ 0.15821, 0.14167, 0.14398, 0.12644, 0.13024, 0.11462, 0.10396, 0.113, 0.10186, 0.11163, 0.09473, 0.09069, 0.09669, 0.08982, 0.07114, 0.09301, 0.0694, 0.0693, 0.06345, 0.07799 ],
     "env/all/by_group/frac_mixed": [ 0.875, 0.875, 0.875, 0.875, 1.0, 0.75, 1.0, 0.875, 1.0, 1.0, 1.0, 1.0, 0.875, 0.75, 0.875, 0.875, 1.0, 1.0, 0.625, 0.875 ]
    },
    "answers": [
     {
      "problem": "A train goes 65 km each hour for 6 hours and then 80 km each hour for 2 hours. How many km does it go?",
      "answer": "550",
      "text": "Let's see.\n6 * 65 = 360 + 30 = 390\n390 + 160 = 550\n\\boxed{550}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Hugo has 23 balls. Kim has 9 fewer than Hugo. Olga has 3 times as many as Kim. Gina has 17 fewer than Olga. Ben has 38 more than Gina. How many balls does Ben have?",
      "answer": "63",
      "text": "Let's see.\nKim: 23 - 9 = 12? No, 14\nOlga: 3 * 14 = 30 + 12 = 42? Yes\nGina: 42 - 17 = 25? Yes\nBen: 25 + 38 = 63? Yes\n\\boxed{63}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Olga buys 6 flowers for 23 dollars each and 2 pens for 19 dollars each and pays with 200 dollars. How many dollars does Olga get back?",
      "answer": "24",
      "text": "Let's see.\nflowers: 2 * 19 = 20 + 18 = 38\n200 - 191 = 9\n\\boxed{9}",
      "paid": 0.0,
      "cut": false
     }
    ]
   }
  },
  "7": {
   "lead": "At last, here is a run that ends with every test problem solved.",
   "choices": {
    "a": "The reward does not require a correct answer.",
    "b": "The test problems are those of training.",
    "c": "Each update goes too far.",
    "d": "The problems are too easy."
   },
   "said": {
    "a": "The reward is 1 for a correct answer, and the share of correct rollouts, which the grader counts separately, is the same curve.",
    "b": "Yes. It is tested on the four problems that it is trained on. Held-out accuracy of exactly 1, again and again, is too good for a model of this size.",
    "c": "In rooms 4 and 6 you saw what happens to a run whose updates go too far. None of the curves here collapses.",
    "d": "At the first step one answer in five was correct, and at the last step the problems are the same."
   },
   "truth": "b",
   "repair": "eval_problems = museum.py:four_problems, repaired to eval_problems = tiny-test",
   "seen": [
    "The test set was the training set: four problems, asked over and over. The repaired run differs only in its test set, which now has other problems. On these the model gets to 77% in ten steps and falls back to 68%. It seems first to have learned to write solution steps, and then to have memorized the four training problems. How far it falls is luck. On two CPU threads, where sums are rounded differently, it fell to 65%, and with another seed it went only from 81 to 80%.",
    "With a separate test set the alarm reward_without_accuracy goes off: it compares the reward with held-out accuracy. In the leaking run this comparison could show nothing, because reward and accuracy came from the same problems. A leak is seldom this obvious. A test problem that differs from a training problem only in its numbers is a leak as well. The same holds for a problem that appears on a page of the pre-training text. The signs of a leak are a result that is too good, an entropy near 0, and few groups left with a signal after so few steps."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ 0.21875, 0.32812, 0.51562, 0.54688, 0.67188, 0.625, 0.70312, 0.84375, 0.8125, 0.82812, 0.875, 0.9375, 0.84375, 0.90625, 0.9375, 0.9375, 0.98438, 0.90625, 0.9375, 0.95312 ],
     "right": [ 0.21875, 0.32812, 0.51562, 0.54688, 0.67188, 0.625, 0.70312, 0.84375, 0.8125, 0.82812, 0.875, 0.9375, 0.84375, 0.90625, 0.9375, 0.9375, 0.98438, 0.90625, 0.9375, 0.95312 ],
     "eval_acc": [ 0.0, null, null, null, null, null, null, null, null, null, 1.0, null, null, null, null, null, null, null, null, 1.0 ],
     "env/all/ac_tokens_per_turn": [ 15.125, 20.625, 22.34375, 21.95312, 26.40625, 30.40625, 28.40625, 36.46875, 39.84375, 37.85938, 38.65625, 41.21875, 40.67188, 43.98438, 45.01562, 43.21875, 43.98438, 45.01562, 44.71875, 43.90625 ],
     "optim/token_entropy": [ 0.24033, 0.1702, 0.12528, 0.12957, 0.11442, 0.09032, 0.07971, 0.05242, 0.06078, 0.05591, 0.04087, 0.0349, 0.03628, 0.03338, 0.02826, 0.02739, 0.02318, 0.02561, 0.02109, 0.01889 ],
     "env/all/by_group/frac_mixed": [ 0.625, 1.0, 1.0, 0.875, 0.625, 0.875, 0.75, 0.375, 0.5, 0.625, 0.625, 0.375, 0.5, 0.375, 0.5, 0.5, 0.125, 0.5, 0.375, 0.25 ]
    },
    "answers": [
     {
      "problem": "Solve for x: 9x + 6 = 5x + 26",
      "answer": "5",
      "text": "Let's see.\n9 - 5 = 4\n4x = 26 - 6 = 20\nx = 20 / 4 = 5\n\\boxed{5}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Compute 8 * (15 + 4) - 30 + 6 + 37.",
      "answer": "165",
      "text": "Let's see.\n15 + 4 = 19\n8 * 19 = 80 + 72 = 152\n152 - 30 = 122\n122 + 6 = 128\n128 + 37 = 165\n\\boxed{165}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Compute 3 * 5 + 22.",
      "answer": "37",
      "text": "Let's see.\n15 + 22 = 37\n\\boxed{37}",
      "paid": 1.0,
      "cut": false
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.21875, 0.32812, 0.51562, 0.54688, 0.67188, 0.625, 0.70312, 0.84375, 0.8125, 0.82812, 0.875, 0.9375, 0.84375, 0.90625, 0.9375, 0.9375, 0.98438, 0.90625, 0.9375, 0.95312 ],
     "right": [ 0.21875, 0.32812, 0.51562, 0.54688, 0.67188, 0.625, 0.70312, 0.84375, 0.8125, 0.82812, 0.875, 0.9375, 0.84375, 0.90625, 0.9375, 0.9375, 0.98438, 0.90625, 0.9375, 0.95312 ],
     "eval_acc": [ 0.03, null, null, null, null, null, null, null, null, null, 0.77, null, null, null, null, null, null, null, null, 0.65 ],
     "env/all/ac_tokens_per_turn": [ 15.125, 20.625, 22.34375, 21.95312, 26.40625, 30.40625, 28.40625, 36.46875, 39.84375, 37.85938, 38.65625, 41.21875, 40.67188, 43.98438, 45.01562, 43.21875, 43.98438, 45.01562, 44.71875, 43.90625 ],
     "optim/token_entropy": [ 0.24033, 0.1702, 0.12528, 0.12957, 0.11442, 0.09032, 0.07971, 0.05242, 0.06078, 0.05591, 0.04087, 0.0349, 0.03628, 0.03338, 0.02826, 0.02739, 0.02318, 0.02561, 0.02109, 0.01889 ],
     "env/all/by_group/frac_mixed": [ 0.625, 1.0, 1.0, 0.875, 0.625, 0.875, 0.75, 0.375, 0.5, 0.625, 0.625, 0.375, 0.5, 0.375, 0.5, 0.5, 0.125, 0.5, 0.375, 0.25 ]
    },
    "answers": [
     {
      "problem": "Solve for x: 9x + 6 = 5x + 26",
      "answer": "5",
      "text": "Let's see.\n9 - 5 = 4\n4x = 26 - 6 = 20\nx = 20 / 4 = 5\n\\boxed{5}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Compute 8 * (15 + 4) - 30 + 6 + 37.",
      "answer": "165",
      "text": "Let's see.\n15 + 4 = 19\n8 * 19 = 80 + 72 = 152\n152 - 30 = 122\n122 + 6 = 128\n128 + 37 = 165\n\\boxed{165}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "Compute 3 * 5 + 22.",
      "answer": "37",
      "text": "Let's see.\n15 + 22 = 37\n\\boxed{37}",
      "paid": 1.0,
      "cut": false
     }
    ]
   }
  },
  "8": {
   "lead": "This run has a KL penalty: the loss contains the distance from the run's starting model, with a weight of 1. Each batch of rollouts is used four times, and no answer may be longer than 80 tokens.",
   "choices": {
    "a": "The weight of the penalty is too small.",
    "b": "The gradient of the penalty does not depend on the reference.",
    "c": "The reward does not require a correct answer.",
    "d": "Answers are cut off before their end."
   },
   "said": {
    "a": "A larger weight would push harder, and in the same direction. The distance grows although the loss penalizes it.",
    "b": "Yes. It is k1, and the gradient of log p - log q is that of log p alone. With fresh rollouts it is 0 on average. With rollouts that are used four times it pushes down whatever was sampled, correct or not.",
    "c": "Then the reward would stay up while the correct answers vanish. They vanish together.",
    "d": "At the end they are. But when the correct answers began to vanish, nearly all answers still ended by themselves."
   },
   "truth": "b",
   "repair": "edit = k1_in_the_loss, repaired to edit = k2_in_the_loss",
   "seen": [
    "As section 7.3 showed, k1 in the loss does not pull the policy toward the reference. With fresh rollouts k1 adds only noise. With rollouts that are used again it does worse: each pass pushes down every token that was sampled, and no clip stops the push. For five steps the reward outweighs this push. Then the model has been pushed away from everything it used to write. It writes nonsense, entropy rises fourfold, and at last every answer repeats the same few characters up to the limit.",
    "The repaired run has k2 with the same weight, and 62.5% of its last step's rollouts are correct. The package refuses k1 in the loss, so for this room we replaced one of its functions. The curve of the distance shows k1 in both runs. Chapter 7 measures this distance with k3. But k3 contains an exponential: a few tokens that four passes have pushed down take it above a thousand nats in this run's very first step."
   ],
   "sick": {
    "curves": {
     "env/all/reward/total": [ 0.20833, 0.39583, 0.35417, 0.4375, 0.60417, 0.47917, 0.20833, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 ],
     "right": [ 0.20833, 0.39583, 0.35417, 0.4375, 0.60417, 0.47917, 0.20833, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 ],
     "env/all/ac_tokens_per_turn": [ 19.14583, 17.04167, 28.6875, 40.79167, 43.0625, 49.64583, 47.14583, 53.20833, 77.8125, 80.0, 78.9375, 80.0, 80.0, 80.0, 80.0, 80.0 ],
     "optim/token_entropy": [ 0.14604, 0.14155, 0.12276, 0.09187, 0.0779, 0.08974, 0.14045, 0.18871, 0.35075, 0.42379, 0.43828, 0.06816, 0.13145, 0.20342, 0.10177, 0.05098 ],
     "kl_policy_base": [ -0.14678, -0.01087, 0.01129, 0.01124, 0.06183, 0.06289, 0.44177, 1.0734, 2.44393, 3.68409, 5.76394, 9.31155, 9.36062, 6.07149, 3.28378, 2.69239 ],
     "env/all/by_group/frac_mixed": [ 0.83333, 0.83333, 0.83333, 1.0, 1.0, 1.0, 0.66667, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 ]
    },
    "answers": [
     {
      "problem": "26 flowers are packed in boxes of 7. How many are left over?",
      "answer": "5",
      "text": "Let0000000000000000000000000000000000000000000000000000000000000000000000000000000",
      "paid": 0.0,
      "cut": true
     },
     {
      "problem": "What is the 8th number of 18, 21, 24, 27, ...?",
      "answer": "39",
      "text": "Let00000000000 *0000000000000000000000000000000000000000000000000000000000000000000",
      "paid": 0.0,
      "cut": true
     },
     {
      "problem": "What is the mean of 15, 21 and 3?",
      "answer": "13",
      "text": "Let0000000000000000000000000000000000000000000000000000000000000000000000000000000",
      "paid": 0.0,
      "cut": true
     }
    ]
   },
   "repaired": {
    "curves": {
     "env/all/reward/total": [ 0.20833, 0.375, 0.27083, 0.29167, 0.35417, 0.27083, 0.5, 0.41667, 0.64583, 0.41667, 0.45833, 0.3125, 0.25, 0.33333, 0.35417, 0.625 ],
     "right": [ 0.20833, 0.375, 0.27083, 0.29167, 0.35417, 0.27083, 0.5, 0.41667, 0.64583, 0.41667, 0.45833, 0.3125, 0.25, 0.33333, 0.35417, 0.625 ],
     "env/all/ac_tokens_per_turn": [ 19.14583, 16.64583, 21.66667, 28.5, 26.47917, 31.20833, 25.625, 25.72917, 38.22917, 21.77083, 23.72917, 23.1875, 14.52083, 22.5, 34.29167, 26.77083 ],
     "optim/token_entropy": [ 0.14604, 0.16159, 0.17861, 0.17803, 0.13444, 0.15091, 0.13905, 0.11685, 0.08729, 0.11994, 0.13121, 0.13988, 0.20005, 0.13464, 0.10262, 0.09792 ],
     "kl_policy_base": [ -0.04333, -0.00678, 0.00604, 0.00865, 0.01083, 0.00833, 0.01619, 0.00968, 0.02051, 0.01373, 0.02175, 0.02454, 0.06689, 0.03762, 0.02528, 0.02359 ],
     "env/all/by_group/frac_mixed": [ 0.83333, 0.83333, 0.5, 0.66667, 0.83333, 0.83333, 0.83333, 0.83333, 0.66667, 1.0, 0.83333, 1.0, 0.83333, 0.83333, 0.83333, 1.0 ]
    },
    "answers": [
     {
      "problem": "26 flowers are packed in boxes of 7. How many are left over?",
      "answer": "5",
      "text": "Let's see.\n7 * 3 = 21\n26 - 21 = 5\n\\boxed{5}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "What is the 8th number of 18, 21, 24, 27, ...?",
      "answer": "39",
      "text": "Let's see.\n21 - 18 = 3? Yes\n7 * 3 = 21? Yes\n18 + 21 = 39? Yes\n\\boxed{39}",
      "paid": 1.0,
      "cut": false
     },
     {
      "problem": "What is the mean of 15, 21 and 3?",
      "answer": "13",
      "text": "Let's see.\n15 + 21 = 46\n70 / 3 = 24? No, 23\n\\boxed{23}",
      "paid": 0.0,
      "cut": false
     }
    ]
   }
  }
 }
};
