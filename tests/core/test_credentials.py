"""Credentials are found by their shape, in time that is linear in the length of a text."""

from __future__ import annotations

from time import process_time

import pytest

from lockgate.core.credentials import holds_credential, holds_token, without_credentials

SECRET = "5qN7xYbV3mKp2Rt8Ws1Lc6Hd9Fg4Jz0Tn5qN7xYbV3m"
SIGNED = "WyJvcmdfMSIsImFkYSJd.aScXyw.3v7Qm1Zc9Kx2Lw8Rt5Yp0Nd4Hf6J"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"a acme_live_AAAAAAAA_{SECRET} b", "a <redacted> b"),
        (f"x_acme_dashboard_AAAAAAAA_{SECRET[:16]}", "x_<redacted>"),
        (f"session={SIGNED};", "session=<redacted>;"),
        ("redis://:hunter2@host/0", "redis://:<redacted>@host/0"),
        ("mysql://us:hun/ter2?@host", "mysql://us:<redacted>@host"),
        (
            "postgresql://host/db?user=u&Password=p",
            "postgresql://host/db?user=u&Password=<redacted>",
        ),
    ],
)
def test_a_credential_is_cut_out_of_a_text_K11(text: str, left: str) -> None:
    assert without_credentials(text) == left
    assert holds_credential(text)
    assert holds_token(text) is ("://" not in text)


PARTS = ["a", "_", "a_", "ab_cd_AAAAAAAA_", "aaaaaa.", "aaaaaaA.", "://a:", "://", "?pass", "?"]


@pytest.mark.parametrize("part", [*PARTS, ":@", "-"])
def test_no_text_takes_long(part: str) -> None:
    text = part * (65_536 // len(part))
    began = process_time()
    without_credentials(text)
    assert process_time() - began < 1
