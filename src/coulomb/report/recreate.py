"""The command line that re-creates a run from its configuration."""

import shlex
from typing import Any

WIDTH = 96  # characters


def command_line(config: dict[str, Any]) -> str:
    """``coulomb train DATA --option value …`` with every option that has a value; '' without a configuration."""
    if not config:
        return ""
    words = ["coulomb train"]
    if config.get("data") is not None:
        words.append(shlex.quote(str(config["data"])))
    for name, value in config.items():
        flag = shlex.quote("--" + str(name).replace("_", "-"))
        if name == "data" or value is None:
            continue
        if isinstance(
            value, dict
        ):  # strengths of single views: --view flip=0; options of the method: --option top_k=20
            option = "--option" if name == "method_options" else "--view"
            words += [f"{option} {shlex.quote(f'{key}={item}')}" for key, item in value.items()]
            continue
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, list):
            words += [f"{flag} {shlex.quote(str(item))}" for item in value]
        else:
            words.append(f"{flag} {shlex.quote(str(value))}")
    lines = [""]
    for word in words:  # as many options on a line as are easily read
        if lines[-1] and len(lines[-1]) + len(word) > WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return " \\\n  ".join(lines)
