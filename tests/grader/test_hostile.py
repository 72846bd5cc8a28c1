"""Texts made to break a grader: no code runs, nothing is raised, and each verdict is cheap."""

import sys
import time

import pytest

from answer_grader import answer_verdict, sympy_parser
from tests.machine_speed import slowness

SECONDS = 0.05
CODE = r"""
__import__("os").system("touch hostile_was_here") ;; exec("open('hostile_was_here', 'w')")
eval("1+1") ;; open("/etc/passwd").read() ;; lambda: 1 ;; ().__class__.__bases__ ;; os.system("id")
[x for x in ().__class__.__bases__[0].__subclasses__()] ;; import os ;; print(1) ;; "a"*10**9
f"{1}" ;; ${jndi:ldap://x} ;; $(id) ;; `id` ;; ; rm -rf / ;; <script>alert(1)</script> ;; {{7*7}}
%s%s%n ;; \input{/etc/passwd} ;; \write18{id} ;; \immediate\write18{ls} ;; \def\x{\x\x}\x
\catcode`\@=11 ;; \csname x\endcsname ;; \newcommand{\a}{\a\a}\a ;; Symbol("x").__class__
sympify("1") ;; parse_expr("1") ;; Integer(1).__class__ ;; x.__class__.__mro__ ;; 1 if 1 else 2
(lambda f: f(f))(lambda f: f(f)) ;; while True: pass ;; raise SystemExit ;; exit() ;; quit()
globals() ;; breakpoint() ;; \x5f\x5fimport\x5f\x5f("os") ;; __builtins__ ;; getattr(1,"real")
compile("1","","eval") ;; ｅｖａｌ("1") ;; pickle.loads(b"") ;; subprocess.run(["id"]) ;; yield 1
"""
BIG = r"""
9^{9^{9}} ;; 9**9**9 ;; 9^9^9^9 ;; 10^{10^{10}} ;; 2^{2^{2^{2^{2^{2}}}}} ;; 1000000! ;; (10^6)!
((9!)!)! ;; 99999!! ;; \binom{1000000}{500000} ;; \binom{10^9}{5\cdot10^8} ;; (1+x)^{1000000}
(x+y+z+w)^{200} ;; (a+b+c+d+e+f)^{60} ;; x^{10^{100}} ;; 1e999999 ;; 1e-999999 ;; 10^{-10^{9}}
(1+10^{-9})^{10^9} ;; \sqrt[1000000]{2} ;; 2^{0.000000001} ;; 2^{1/999983} ;; (-1)^{1/999983}
\gcd(10^{3000},10^{2999}) ;; \sin(10^{1000}) ;; \sin(10^{10^{10}}) ;; e^{e^{e^{e^{e}}}}
\exp(\exp(\exp(100))) ;; \ln(\ln(\ln(0.5))) ;; \log_{1}2 ;; \tan\frac{\pi}{2} ;; 0^0 ;; 0^{-1}
\cos\frac{\pi}{999983} ;; \cos\frac{\pi}{359}+\cos\frac{\pi}{353} ;; 1/0 ;; 0/0 ;; \infty-\infty
\frac{1}{\infty} ;; zoo ;; nan ;; oo ;; -oo ;; oo-oo ;; NaN ;; inf ;; 1/(1-1) ;; \infty/\infty
\frac{1}{\sqrt2-\sqrt2} ;; \frac{1}{\sqrt{3+2\sqrt2}-1-\sqrt2} ;; \prod_{k=1}^{10^9}k
\sum_{n=1}^{\infty}\frac1{n^2} ;; \sum_{k=1}^{10^{12}}k ;; \int_0^\infty e^{-x^2}dx ;; 3^{20000}
\lim_{x\to0}\frac{\sin x}{x} ;; factorial(10**9) ;; isprime(2^{9999}-1)
\lfloor 10^{5000}/7\rfloor
\lfloor\pi\cdot10^{4000}\rfloor ;; ((((2^2)^2^2)^2)^2)^2 ;; 7^{4000}-7^{3999} ;; 10^{3000}+1
(((((((((x+1)^2+1)^2+1)^2+1)^2+1)^2+1)^2+1)^2+1)^2+1)^2 ;; \frac{10^{3000}+1}{10^{3000}-1}
(x+1)^{400} ;; (x+1)^{400}-(x-1)^{400} ;; (\sqrt2+\sqrt3+\sqrt5+\sqrt7+\sqrt{11}+\sqrt{13})^{12}
\frac{1}{\sqrt2+\sqrt3+\sqrt5+\sqrt7+\sqrt{11}+\sqrt{13}} ;; 2^{\sqrt{2}^{\sqrt2}} ;; i^{i^{i^i}}
\sqrt{1+\sqrt{2+\sqrt{3+\sqrt{4+\sqrt{5+\sqrt{6+\sqrt{7}}}}}}} ;; \pi^{\pi^{\pi^{\pi}}}
\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt2}}}}} ;; \sqrt[3]{\sqrt[5]{\sqrt[7]{2}+1}+1}
\sqrt[17]{2}+\sqrt[19]{3}+\sqrt[23]{5} ;; \frac{\pi^{500}}{e^{500}} ;; x^{y^{z^{x^{y^{z}}}}}
"""
BROKEN = r"""
\ ;; \\ ;; { ;; } ;; {} ;; {{}} ;; $ ;; $$ ;; () ;; [] ;; (,) ;; (1,) ;; (,1) ;; 1,,2 ;; ,
. ;; ..
- ;; + ;; ^ ;; _ ;; = ;; < ;; 1< ;; =1 ;; x= ;; \frac ;; \frac1 ;; \frac{1} ;; \frac{}{} ;; \sqrt
\sqrt{} ;; \sqrt[]{2} ;; \text ;; \text{ ;; \text{} ;; \boxed ;; \boxed{ ;; \boxed{} ;; \begin
\boxed{\boxed{ ;; \begin{ ;; \begin{pmatrix} ;; \end{pmatrix} ;; \begin{a}\end{a} ;; \left ;; \left(
| ;; || ;; ||| ;; ! ;; 5!!!!!! ;; ° ;; % ;; \% ;; & ;; \binom ;; \binom{a} ;; x_ ;; x^ ;; x__1
x^^2
1e ;; 1e+ ;; 1.2.3 ;; 1..2 ;; .1. ;; 0x10 ;; 1_000 ;; _2 ;; 1_ ;; 1_1 ;; 1_{} ;; 1_{100}
\log ;; f(
\overline ;; \sin ;; \sin^ ;; \pm ;; \cup ;; 1\cup2 ;; \infty\infty ;; (\infty,\infty)
(1,1) ;; (2,1]
x<x ;; x<1<x ;; 1<2 ;; 2<1 ;; x=x ;; x\in x ;; 0=0 ;; 0=1 ;; 1/0=1/0 ;; or or ;; 1 or ;; None
null
\ud800 ;; &#x35; ;; "5 ;; 5//2 ;; 5%2 ;; 5&3 ;; 5@3 ;; ((5) ;; (5)) ;; {5 ;; \{5 ;; 5\}
[5) ;; (5]
"""
ODD = [
    "", "\x00", "5\x00", "\ud800", "5\ud800", "\udfff\udfff", "\u202e5", "5\u202e", "٥", "𝟓", "Ⅴ",
]  # fmt: skip
BRACKETS = [
    ("(", ")"), ("{", "}"), ("[", "]"), (r"\{", r"\}"), (r"\left(", r"\right)"), ("|", "|"),
    (r"\sqrt{", "}"), (r"\frac{1}{1+", "}"), ("x^{", "}"), (r"\text{", "}"), (r"\boxed{", "}"),
    ("-", ""), (r"\sin ", ""), ("((", ")"), (r"\binom{1}{", "}"), ("x_{", "}"), ("1+(", ""),
    (r"\begin{pmatrix}", r"\end{pmatrix}"), (r"\overline{", "}"),
]  # fmt: skip
REPEATED = [
    "a", "1", " ", "\\", "{", "}", "$", "^", "_", "(", "\n", "\x00", "é", "\ud800", "\u202e", "½",
    "²", "0.", "1,", "1,000,", r"\,", r"\frac", "x+", "!", "%", "-", "&", "|", "'", r"\text{a}",
    r"\text{1}", "<", "=", r"\boxed{", r"\left", "1 ", "and ", "1 or ", r"\pm", "a:", ".", "π",
    "√", r"\$", r"\overline", "1_", r"\circ", r"\cup", r"\infty", "1/", "i", "e^", "\u0301", "A1",
    r"\\", "USD ", "1.0.", "0.(1)", "0.1...", r"\mathbb{R}", "x=", "x<", "1:", r"\sqrt", "sin",
]  # fmt: skip
LONG = [
    r"\max(" + ",".join("1" * 600) + ")",
    "|" * 50 + "x" + "|" * 50,
    r"\pm".join("123456789"),
    ",".join(map(str, range(600))),
    r"\{" + ",".join(map(str, range(300))) + r"\}",
    r"\cup".join(f"({i},{i + 1})" for i in range(100)),
    r"\begin{pmatrix}" + r"\\".join(["1&2&3"] * 90) + r"\end{pmatrix}",
    "0." + "0" * 3_500 + "1",
]
CASES = (
    [case for line in (CODE + BIG + BROKEN).split("\n") for case in line.split(" ;; ")]
    + ODD
    + LONG
    + [a * n + "1" + b * n for a, b in BRACKETS for n in (30, 300, 100_000)]
    + [unit * (size // len(unit)) for unit in REPEATED for size in (1_100, 3_900, 1_000_000)]
)
TRUTHS = ["5", r"\sqrt{2}+\pi", "x^2+1", "(1,2)", r"\text{even}"]


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The first use imports mpmath and sympy; that is not the cost of a verdict."""
    answer_verdict(r"\sin 1", r"\cos 1")
    sympy_parser("x+1")


def cpu_seconds(function, *args) -> float:
    """The shortest of a few runs: in one, Python may tidy up after all the other tests, or another
    program may have taken the processor's caches. On a slow machine, what a fast one would need."""
    best = 1e9
    for _ in range(5):
        start = time.process_time()
        function(*args)
        best = min(best, time.process_time() - start)
        if best < SECONDS / 2:
            return best
    return best / slowness()


def test_every_verdict_is_cheap_and_none_is_right():
    slow, accepted = [], []
    for case in CASES:
        for i, truth in enumerate(TRUTHS if len(case) < 10_000 else TRUTHS[:1]):
            text = case if i % 2 else rf"\boxed{{{case}}}"
            if answer_verdict(text, truth) == "correct":
                accepted.append((case[:60], truth))
            if cpu_seconds(answer_verdict, text, truth) > SECONDS:
                slow.append((case[:60], truth))
    assert slow == []
    assert accepted == []


def test_against_texts_like_themselves():
    slow = [case[:60] for case in CASES if cpu_seconds(answer_verdict, "1+" + case, case) > SECONDS]
    assert slow == []


def test_long_numbers_are_cheap_beside_functions():
    """A function of many digits costs much more than a sum."""
    truths = (r"\binom{m}{2}", "(m-1)!", r"\ln m+\sin m+\arctan m", r"\sqrt[7]{2}+e^{m}")
    pairs = [("7" * digits, truth) for digits in (400, 800, 1_400) for truth in truths]
    pairs += [("6.02*10^23" * 25, "3x^2+2x+7")]
    assert [pair for pair in pairs if cpu_seconds(answer_verdict, *pair) > SECONDS] == []


def test_nothing_is_printed_run_or_evaluated(capfd, tmp_path, monkeypatch):
    """Nor does anything call eval, exec or sympy's parsers."""
    evaluated = []
    for name in (
        "builtins.eval",
        "builtins.exec",
        "sympy.sympify",
        "sympy.parsing.sympy_parser.parse_expr",
    ):
        monkeypatch.setattr(name, lambda text, *given, **named: evaluated.append(text))
    monkeypatch.chdir(tmp_path)
    limit = sys.getrecursionlimit()
    for case in CASES:
        for truth in ("5", "x+5"):
            answer_verdict(case, truth)
            answer_verdict(truth, case)
    assert evaluated == [] and capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert sys.getrecursionlimit() == limit
