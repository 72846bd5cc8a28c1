"""The exact value of a tree: a quotient of two polynomials."""

from fractions import Fraction

from ..limits import Undefined, Unparsed, Work
from ..reading.trees import (
    Add,
    Call,
    Const,
    Degrees,
    Div,
    Mul,
    Neg,
    Node,
    Num,
    Pow,
    Root,
    Sym,
    Unknown,
)
from .angles import Angles
from .atoms import ConstantAtom, ImaginaryAtom, SymbolAtom
from .forms import Form, Forms
from .functions import Functions
from .polynomials import Ring
from .powers import Powers
from .zero import ZeroTest

NUMBERS = ("pi", "e")


class ExactValues:
    """One comparison's exact arithmetic."""

    def __init__(self, work: Work):
        self.work = work
        self.ring = Ring(work)
        self.zero = ZeroTest(self.ring)
        self.forms = Forms(self.ring, self.zero)
        self.angles = Angles(self.forms)
        self.powers = Powers(self.forms, self.angles)
        self.functions = Functions(self.forms, self.angles, self.powers)
        self.known: dict[Node, Form] = {}

    def form(self, tree: Node) -> Form:
        found = self.known.get(tree)
        if found is None:
            self.work.spend(4)
            read = READERS.get(type(tree))
            if read is None:
                raise Unparsed
            found = self.known[tree] = read(self, tree)
        return found

    def number(self, tree: Num) -> Form:
        return self.forms.rational(tree.value)

    def symbol(self, tree: Sym) -> Form:
        if tree.name == "...":
            raise Unparsed  # 0 ... 9 is no product
        return self.forms.whole(self.ring.generator(SymbolAtom(tree.name)))

    def constant(self, tree: Const) -> Form:
        if tree.name == "i":
            return self.forms.whole(self.ring.generator(ImaginaryAtom()))
        if tree.name not in NUMBERS:
            raise Undefined  # an infinity, a set of numbers
        return self.forms.whole(self.ring.generator(ConstantAtom(tree.name)))

    def sum(self, tree: Add) -> Form:
        total = self.form(tree.items[0])
        for term in tree.items[1:]:
            total = self.forms.plus(total, self.form(term))
        return total

    def product(self, tree: Mul) -> Form:
        total = self.form(tree.items[0])
        for factor in tree.items[1:]:
            total = self.forms.times(total, self.form(factor))
        return total

    def quotient(self, tree: Div) -> Form:
        return self.forms.divided(self.form(tree.top), self.form(tree.bottom))

    def negated(self, tree: Neg) -> Form:
        return self.forms.negative(self.form(tree.inner))

    def degrees(self, tree: Degrees) -> Form:
        pi = self.forms.whole(self.ring.generator(ConstantAtom("pi")))
        one_degree = self.forms.times(pi, self.forms.rational(Fraction(1, 180)))
        return self.forms.times(self.form(tree.inner), one_degree)

    def power(self, tree: Pow) -> Form:
        return self.powers.raised(self.form(tree.base), self.form(tree.exponent))

    def root(self, tree: Root) -> Form:
        degree = self.forms.reciprocal(self.form(tree.degree))
        return self.powers.raised(self.form(tree.inner), degree)

    def call(self, tree: Call) -> Form:
        return self.functions.apply(tree.name, [self.form(arg) for arg in tree.args])

    def unknown(self, tree: Unknown) -> Form:
        args = [self.form(arg) for arg in tree.args]
        return self.forms.function(tree.name, args, defined=False)


READERS = {
    Num: ExactValues.number,
    Sym: ExactValues.symbol,
    Const: ExactValues.constant,
    Add: ExactValues.sum,
    Mul: ExactValues.product,
    Div: ExactValues.quotient,
    Neg: ExactValues.negated,
    Degrees: ExactValues.degrees,
    Pow: ExactValues.power,
    Root: ExactValues.root,
    Call: ExactValues.call,
    Unknown: ExactValues.unknown,
}
