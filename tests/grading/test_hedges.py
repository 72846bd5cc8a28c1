"""Answers that name more than one value, or hide one behind another: none of them is paid."""

import pytest

from reasoning_from_scratch.grading import get_last_boxed, grade_answer
from reasoning_from_scratch.rewards import correctness

# "?" a truth, "!" what does not say it: as in the pairs, but as the whole text of a model.
HEDGES = r"""
? 4
! \boxed{3 \boxed{4}} ;; \boxed{\boxed{3} \boxed{4}} ;; \boxed{3 \text{ or } \boxed{4}}
! \boxed{\text{3 or \boxed{4}}} ;; \fbox{3, \boxed{4}} ;; \boxed{5 % \boxed{4} }
! \boxed{3} or \boxed{4} ;; $\boxed{3}$ or $\boxed{4}$ ;; \boxed{3}, \boxed{4}
! \boxed{3} \boxed{4}
! \(\boxed{3}\) and \(\boxed{4}\) ;; \boxed{3} \text{ or } \boxed{4} ;; \boxed 3 or \boxed 4
! \boxed{1}, \boxed{2}, \boxed{3}, \boxed{4} ;; \boxed{3}\quad\boxed{4} ;; \boxed{3}; \boxed{4}
! \boxed{3}\phantom{\boxed{4}} ;; 3 \hphantom{so \boxed{4}} ;; \boxed{4 \tag{3}}
! \boxed{}, \boxed{3}
! \boxed{1, 2, 3, 4} ;; \boxed{1 2 3 4} ;; \boxed{\{1, 2, 3, 4\}} ;; \boxed{3 \text{ or } 4}
! \boxed{4 OR 3} ;; \boxed{4\text{ Or }3} ;; \boxed{4\text{?}} ;; \boxed{4 \text{ likely}}
! \boxed{4 \text{ is false}} ;; \boxed{\text{false: } 4} ;; \boxed{4 (\text{guess})}
! \boxed{4_3}
! \boxed{\text{guess: } 4} ;; \boxed{4 \text{ fails}} ;; \boxed{4 \text{ (extraneous)}}
! \boxed{\begin{cases} 3 \\ 4 \end{cases}} ;; \boxed{\cancel{3} 4} ;; \boxed{3 \to 4}
! \boxed{3 = 4}
! \boxed{1, \ldots, 10} ;; \boxed{1-10} ;; \boxed{\text{any integer}} ;; \boxed{4n}
! \boxed{\neg 4}
! \boxed{2\{2\}} ;; \boxed{\{2\}\{2\}} ;; \boxed{2{2}} ;; \boxed{{2}{2}} ;; \boxed{4 \bmod 3}
! \boxed{4.999\ldots 4} ;; \boxed{4.0000000000000000000001} ;; \boxed{4 + \epsilon}
? 0
! \boxed{0 OR 1} ;; \boxed{0 ou 1} ;; \boxed{0 o 1} ;; \boxed{0 R 1} ;; \boxed{0 \ldots 9}
! \boxed{0...9}
? 1
! \boxed{\text{one of } 2, 1} ;; \boxed{\text{one or } 2}
? \frac{3}{4}
! \boxed{\frac{3}{4}.999...} ;; \boxed{\frac{3}{4}.\overline{9}}
? 12\text{ cm}
! \boxed{12\text{ cm} = 12\text{ kg}} ;; \boxed{12\text{ cm} \approx 12\text{ kg}}
! \boxed{> 12\text{ cm}}
! \boxed{\neq 12\text{ cm}} ;; \boxed{12\text{ cm}\text{ million}}
! \boxed{12\text{ cm}+\epsilon}
? \text{even}
! \boxed{\neq \text{even}} ;; \boxed{\pm \text{even}} ;; \boxed{\text{even}, \ldots}
! \boxed{!\text{even}}
! \boxed{\text{odd}} or \boxed{\text{even}} ;; \boxed{\text{odd or even}}
! \boxed{\text{even/odd}}
? \text{(C)}
! \boxed{\text{(C)} OR \text{(B)}} ;; \boxed{(C) or maybe (B)} ;; \boxed{(C)(B)}
! \boxed{(C) \mid (B)}
! \boxed{(C) 或 (B)} ;; \boxed{\text{(C)} \quad \text{(B)}} ;; \boxed{(C) is wrong}
! \boxed{(C) but B}
! \boxed{(B)}, \boxed{(C)} ;; \boxed{(A) (B) (C) (D)}
? C
! \boxed{B = C} ;; \boxed{C\text{B}} ;; \boxed{C \text{ B}} ;; \boxed{C \text{ or } B}
! \boxed{C. or B.}
? 3:30\text{ p.m.}
! \boxed{\underline{3:30 a.m.} 3:30 p.m.} ;; \boxed{2 + 3:30 p.m.} ;; \boxed{\approx 3:30 p.m.}
"""
# The same forms where they say one thing.
HONEST = r"""
? 4
= \boxed{\boxed{4}} ;; \boxed{x = \boxed{4}} ;; \fbox{\boxed{4}} ;; \boxed{4}, \boxed{4}
= \boxed{4} or \boxed{4.0} ;; \boxed{3} no, \boxed{4} ;; so \boxed{4}. Is it 5? No: \boxed{4}
= \boxed{3 or \boxed{4} ;; \textcolor{red}{\boxed{4}} ;; \boxed{\text{The answer is \boxed{4}}}
? 3, 4
= \boxed{3} or \boxed{4} ;; $\boxed{4}$ and $\boxed{3}$ ;; \boxed{3}, \boxed{4}
= \boxed{3, \boxed{4}}
? \text{(C)}
= \boxed{(C) 12} ;; \boxed{\text{(C) no solution}} ;; \boxed{C. less than 5}
"""


def cases(text: str) -> list[tuple[str, str]]:
    found, truth = [], ""
    for line in text.strip().splitlines():
        if line.startswith("? "):
            truth = line[2:]
        else:
            found += [(answer.strip(), truth) for answer in line[2:].split(" ;; ")]
    return found


@pytest.mark.parametrize("text, truth", cases(HEDGES))
def test_no_hedge_is_paid(text, truth):
    assert correctness(text, truth) == 0.0
    assert not grade_answer(text, truth)


@pytest.mark.parametrize("text, truth", cases(HONEST))
def test_the_same_forms_where_they_say_one_thing(text, truth):
    assert correctness(text, truth) == 1.0


def test_a_box_in_a_box():
    assert get_last_boxed(r"\boxed{3 \boxed{4}}") == "3  {4}"
    assert get_last_boxed(r"\boxed{\boxed{4}}") == "4"
    assert get_last_boxed(r"\boxed{1} \boxed{2}") == "2"
    assert get_last_boxed(r"\boxed{\boxed{4}") == "4"
    assert get_last_boxed(r"\boxed{3} \phantom{\boxed{4}}") is None
