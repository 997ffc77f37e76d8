"""Check that messages name a command that installs packages in this environment."""

import shlex
import sys

from gateway import installation
from gateway.config import Config
from gateway.installation import find_installer, install_command, missing_extras

OWN = shlex.quote(sys.executable)


def test_install_command_of_a_venv_is_its_own_pip(tmp_path):
    assert find_installer(str(tmp_path), "pytest", "pytest") == [OWN, "-m", "pip", "install"]


def test_install_command_of_an_environment_without_pip_is_uv(tmp_path):
    assert find_installer(str(tmp_path), "pytest", "no_such_pip") == ["uv", "pip", "install", "--python", OWN]


def test_install_command_of_pipx_names_its_application(tmp_path):
    (tmp_path / "pipx_metadata.json").touch()
    assert find_installer(str(tmp_path), "pytest") == ["pipx", "runpip", "pytest", "install"]


def test_install_command_quotes_what_a_shell_would_read(monkeypatch):
    monkeypatch.setattr(installation, "find_installer", lambda: ["pip", "install"])
    assert install_command("--no-deps", "gateway[mcp]") == "pip install --no-deps 'gateway[mcp]'"


def test_install_command_of_the_image_builds_another_one(monkeypatch):
    assert find_installer(package="no-such-package") == []
    monkeypatch.setattr(installation, "find_installer", list)
    assert install_command("gateway[mcp]") == installation.IMAGE
    assert install_command("model", image="no demo") == "no demo"


def test_extras_that_a_configuration_needs_are_missed(monkeypatch):
    pages = {"web_search": {"service": "static", "pages": {"fetch": True}}}
    config = Config.model_validate(
        {"tools": {"mcp": {"hosts": ["*"]}, **pages}, "tracing": {"enabled": True}},
    )
    assert [*missing_extras(config)] == []
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    monkeypatch.setattr(installation, "find_installer", lambda: ["pip", "install"])
    assert [*missing_extras(Config())] == []
    assert dict(missing_extras(config)) == {
        "tools.mcp": "pip install 'gateway[mcp]'",
        "tools.web_search.pages": "pip install 'gateway[web]'",
        "tracing": "pip install 'gateway[otel]'",
    }
