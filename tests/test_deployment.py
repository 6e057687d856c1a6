"""The files of `docs/deploy`: what Docker, compose and Kubernetes take, and what we have."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from tests.source import ROOT
from wick_graph.cli.app import app
from wick_graph.config import load_config

DEPLOY = ROOT / "docs" / "deploy"
MANIFESTS: list[Any] = [
    document
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text("utf-8"))
]
NAMES = [f"{one['kind']}-{one['metadata']['name']}" for one in MANIFESTS]
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
STEPS = [
    shlex.split(line)
    for line in re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text("utf-8")).splitlines()
    if line and not line.startswith("#") and "[" not in line.split()[1]
]


def check_command(words: list[str]) -> None:
    """Check that `wick` has a command, and each of its options."""
    found: Any = typer.main.get_command(app)
    words = [*words]
    while hasattr(found, "commands"):
        assert words[0] in found.commands, words
        found = found.commands[words.pop(0)]
    known = {name for option in found.params for name in option.opts}
    assert {word for word in words if word.startswith("-")} <= known, (words, known)


def pods() -> list[Any]:
    """The pods that the manifests make."""
    made = (one for one in MANIFESTS if "template" in one.get("spec", {}))
    return [one["spec"]["template"]["spec"] for one in made]


@pytest.mark.parametrize("document", MANIFESTS, ids=NAMES)
def test_a_manifest_is_what_kubernetes_takes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    wrong = {**document, "metadata": {**document["metadata"], "nmae": "x"}}
    with pytest.raises(kubernetes_validate.ValidationError):  # it finds a wrong key at all
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_what_the_manifests_are_for() -> None:
    kinds = sorted(one["kind"] for one in MANIFESTS)
    assert kinds == sorted(
        (*("ConfigMap", "Job", "Service", "HorizontalPodAutoscaler"),)
        + ("Deployment", "PodDisruptionBudget") * 2
    )
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        own = container["securityContext"]
        assert not own["allowPrivilegeEscalation"]
        assert own["readOnlyRootFilesystem"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        check_command(container["args"])
        if (drain := _seconds(container["args"])) is not None:
            assert pod["terminationGracePeriodSeconds"] > drain


def _seconds(words: list[str]) -> float | None:
    """Return the seconds after `--drain`."""
    return float(words[words.index("--drain") + 1].rstrip("s")) if "--drain" in words else None


def test_compose_starts_one_database_two_servers_and_three_workers() -> None:
    services = COMPOSE["services"]
    replicas = {name: one.get("deploy", {}).get("replicas", 1) for name, one in services.items()}
    assert replicas == {"postgres": 1, "migrate": 1, "serve": 2, "worker": 3}
    for name, service in services.items():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), volume
        for other in service.get("depends_on", {}):
            assert other in services
        if name != "postgres":
            check_command(service["command"])
            assert service["read_only"]
            build = service["build"]
            assert (DEPLOY / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()
            grace = float(service["stop_grace_period"].rstrip("s"))
            assert grace > (_seconds(service["command"]) or 0)


def test_the_configurations_can_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WICK_DATABASE_URL", "postgresql://wick:x@localhost/wick")
    (config,) = (one for one in MANIFESTS if one["kind"] == "ConfigMap")
    (tmp_path / "agents.yaml").write_text(config["data"]["agents.yaml"], "utf-8")
    for path in (DEPLOY / "agents.yaml", tmp_path / "agents.yaml"):
        assert load_config(path).store_url.startswith("postgresql://")


def test_the_image_copies_what_exists_and_runs_what_we_have() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()}
    copied = [word for step in STEPS if step[0] == "COPY" for word in step[1:-1]]
    assert {"pyproject.toml", "nodes", "wick_graph"} <= {*copied}
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source in kept, f"{source} is ignored"
    assert project["readme"] in copied
    for extras in re.findall(r"\[((?:\w+,)+\w+)\]", text):
        assert {*extras.split(",")} <= {*project["optional-dependencies"]}
    (user,) = (step[1] for step in STEPS if step[0] == "USER")
    assert user.partition(":")[0] not in ("root", "0")
    entry, command = (
        yaml.safe_load(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", text, re.M)
    )
    assert entry == ["wick"]
    check_command(command)
