"""The page at `/`, and that no text of a client or of a model acts on it."""

import re

import httpx
import pytest

from rfs.commands import cli

pytest.importorskip("starlette", reason="needs the extra serve")
tinker = pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")


@pytest.fixture(scope="module")
def trained(server):
    with tinker.ServiceClient(
        base_url=server.address, api_key="tml-test", display_name="<script>alert(1)</script>"
    ) as service:
        client = service.create_lora_training_client("tiny", rank=4).result()
        tokens = server.tinker.models.base("tiny").tokenizer.encode("Mia has <b>8</b> stamps.")
        count = len(tokens) - 1
        data = tinker.Datum(
            model_input=tinker.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={
                "target_tokens": [0, *tokens[2:]],
                "logprobs": [0.0] + [-1.0] * (count - 1),
                "advantages": [0.0] + [-2.0] + [1.0] * (count - 2),
            },
        )
        client.forward_backward([data], "importance_sampling").result()
        client.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
        client.save_state("first").result()
        yield client.model_id


def test_from_the_page_to_a_token(server, trained):
    words = {"model": "tiny", "prompt": "<script>1", "max_tokens": 3, "n": 2}
    httpx.post(f"{server.address}/v1/completions", json=words)
    streamed = {"model": "tiny", "messages": [{"role": "user", "content": "2"}], "stream": True}
    httpx.post(f"{server.address}/v1/chat/completions", json=streamed | {"max_tokens": 5})
    home = httpx.get(server.address).text
    rows = re.findall(r"<td>tiny</td><td>(\d)</td><td>\d+</td><td>(\d)</td>", home)
    assert [int(answers) for answers, _ in rows] == [1, 2]  # the newest first
    (openai,) = {r.endpoint.__self__ for r in server.application.routes if r.path == "/v1/models"}
    kept = {type(value) for call in openai.latest_calls for value in call}
    assert kept == {str, int}  # no model, no rollouts
    assert "<script>" not in home and "&lt;script&gt;alert" in home
    (link,) = set(re.findall(r'href="(models/[^"]+)"', home))
    page = httpx.get(f"{server.address}/{link}").text
    assert f"tinker://{trained}/weights/first" in page
    for shown in (home, page):  # on a phone a table scrolls in its box, and not the page
        assert (
            shown.count("<table") == len(re.findall(r'<div class="scroll"[^>]*><table', shown)) > 0
        )
    (link,) = re.findall(r'href="([^"]+/calls/1)"', page)
    page = httpx.get(f"{server.address}/models/{link}").text
    assert "loss now, 1 step later" in page and "<b>8" not in page
    negative = re.findall(r'<i class=n4 title="advantage -2; ([^"]+)">', page)
    assert len(negative) == 1
    assert re.fullmatch(
        r"log-probability of the sampler -1.000; then -[\d.]+; now -[\d.]+", negative[0]
    )
    positive = re.findall(r"<i class=p2 .*?then (-[\d.]+); now (-[\d.]+)", page)
    rose = [float(now) >= float(then) for then, now in positive]
    assert sum(rose) > len(rose) / 2


def test_a_key_is_encoded_in_links(server, trained):
    """It may have characters that mean something in an address."""
    home = httpx.get(server.address, params={"key": "tml-a&b=c#d e"}).text
    assert "TINKER_API_KEY=YOUR_KEY" in home and "tml-local" not in home
    (link,) = set(re.findall(r'href="(models/[^"]+)"', home))
    assert link == f"models/{trained}?key=tml-a%26b%3Dc%23d%20e"
    page = httpx.get(f"{server.address}/{link}")
    assert page.status_code == 200 and "?key=tml-a%26b%3Dc%23d%20e" in page.text


def test_what_is_not_there(server, trained):
    for path in ("models/x", f"models/{trained}/calls/99", f"models/{trained}/calls/x"):
        assert httpx.get(f"{server.address}/{path}").status_code == 404


def test_a_call_may_arrive_while_the_page_of_its_model_is_written(server, trained, monkeypatch):
    calls = server.tinker.recent_calls.calls[trained]
    before = list(calls)
    calls.append(before[-1])
    arriving = property(lambda call: calls.append(before[-1]) or 5)
    # As from the worker's thread.
    monkeypatch.setattr("rfs.serve.recent_calls.RecordedCall.tokens", arriving)
    assert httpx.get(f"{server.address}/models/{trained}").status_code == 200
    assert len(calls) > len(before) + 1
    calls.clear(), calls.extend(before)


def test_rfs_report_reads_the_folder(server, trained, capsys):
    folder = server.tinker.models.trained[trained].folder
    assert cli.main(["report", str(folder)]) == 0
    assert "report.html" in capsys.readouterr().out
    page = (folder / "train_iteration_000000.html").read_text()
    assert "loss now, 1 step later" in page
    assert "train_iteration_000000.html" in (folder / "report.html").read_text()


def test_rfs_evaluate_measures_a_save(server, trained, capsys):
    folder = server.tinker.models.trained[trained].folder
    assert cli.main(["evaluate", "--model", str(folder), "--limit", "2"]) == 0
    said = capsys.readouterr().out
    assert "accuracy" in said and "None" not in said
