"""No secret of a recipe, a log or the environment is in a report."""

from __future__ import annotations

import pytest

from kitae.watch.report.conceal import HIDDEN, Concealer, own_secrets

conceal = Concealer(("s3cr3t-value",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", f"export HF_TOKEN={HIDDEN}"),
        ("token hf_abcdefghijklmnopqrstuvwx rejected", f"token {HIDDEN} rejected"),
        ("AKIAIOSFODNN7EXAMPLE", HIDDEN),
        ("export WANDB_API_KEY='0123 456'", f"export WANDB_API_KEY={HIDDEN}"),
        ("aws_secret_access_key: wJalrXUtnFEMI/K7MDENG", f"aws_secret_access_key: {HIDDEN}"),
        ('"password": "a b"', f'"password": {HIDDEN}'),
        ("Authorization: Bearer abcdefghijklmnop", f"Authorization: Bearer {HIDDEN}"),
        ("https://me:pass@host/x", f"https://{HIDDEN}@host/x"),
        ("webhook: https://hooks.slack.com/services/T0/B0/xyz", f"webhook: https://hooks.slack.com/{HIDDEN}"),
        ("https://chat.example.org/webhook/abc?x=1", f"https://chat.example.org/webhook/{HIDDEN}"),
        ("webhook: https://example.org/a/b", f"webhook: https://example.org/{HIDDEN}"),
        ("https://x.org/a?page=2&api_key=abc", f"https://x.org/a?page=2&api_key={HIDDEN}"),
        ("run --hub-token abc", f"run --hub-token {HIDDEN}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----.", f"{HIDDEN}."),
        ("it printed s3cr3t-value twice", f"it printed {HIDDEN} twice"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, expected: str):
    assert conceal(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "max_new_tokens: 40",
        "data.tokenizer.folder: /models/wee",
        "export TOKENIZERS_PARALLELISM=false",
        "NUM_TOKENS=5",
        "eos_token: <e>",
        "1,018 tokens in 12 s",
        "key of the data: 445e16997a6d0c57",
        "https://huggingface.co/docs?page=2",
        "monkey=banana",
    ],
)
def test_what_does_not_stays(text: str):
    assert conceal(text) == text


def test_the_environment_tells_its_own_secrets():
    environment = {
        "HF_TOKEN": "a-long-value",
        "SHORT_TOKEN": "1",
        "PATH": "/usr/bin:/bin",
        "MY_PASSWORD": "p" * 20,
    }
    assert own_secrets(environment) == ("p" * 20, "a-long-value")


def test_texts_inside_of_values_are_found():
    value = {"a": ["s3cr3t-value", 3], "s3cr3t-value": None}
    assert conceal.within(value) == {"a": [HIDDEN, 3], HIDDEN: None}
