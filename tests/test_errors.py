"""What a user's mistake looks like."""

from reasoning_from_scratch.errors import UserError, unknown_name


def test_an_error_is_one_line_whatever_it_quotes():
    error = UserError("bad \x1b[31m value:\n" + "x" * 10_000)
    assert str(error).startswith("bad \\x1b[31m value: x")
    assert "\n" not in str(error) and len(str(error)) < 2_200


def test_an_unknown_name_is_answered_with_the_nearest():
    assert str(unknown_name("recipe", "grop", ["grpo", "dapo"])) == (
        "unknown recipe 'grop': did you mean 'grpo'? Expected one of: grpo, dapo"
    )
    assert str(unknown_name("recipe", "zzz", ["grpo"])) == (
        "unknown recipe 'zzz'. Expected one of: grpo"
    )
