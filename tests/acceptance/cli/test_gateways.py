"""The gateway and credentials of a command, and the checks of `everloop doctor` behind it."""

import json
import ssl
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from everloop.gateway.auth.scopes import APPROVE, READ, WRITE
from everloop.local.servers import LOOPBACK, free_port
from tests.acceptance.cli.terminal import CTRL_D, Ran, Shell
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.processes import run_everloop
from tests.support.servers.scripted_openai import Reply
from tests.support.servers.tls import certificate_files, running_tls_proxy
from tests.support.servers.tokens import AUDIENCE, ISSUER, SigningKey

SECRET = "not-to-be-shown-4711"


async def test_a_profile_keeps_a_key_that_nobody_else_reads_and_nothing_shows(
    service: Service, shell: Shell, tmp_path: Path
) -> None:
    """It comes from a pipe. Without it the gateway refuses the command, which names the remedy."""
    keys = tmp_path / "keys"
    _, printed = await run_everloop({}, "keys", "add", "anna", "--file", str(keys))
    key = printed.split()[-1]
    gateway = await service.everloop.add_gateway(EVERLOOP_AUTH="api-key", EVERLOOP_API_KEYS_FILE=str(keys))
    nobody = await shell.run("tasks", "list", "--profile", gateway.url)
    added = await shell.run("profiles", "add", "work", gateway.url, "--auth", "api-key", stdin=key)
    listed = await shell.run("profiles", "list")
    service.script([Reply(["Hello, Anna."])])
    sent = await shell.run("send", "Hello", "--profile", "work")
    refused = await shell.run("profiles", "add", "bad", gateway.url, "--auth", "token", stdin="\n")
    removed = await shell.run("profiles", "remove", "work")
    gateway.process.stop()
    file = tmp_path / "config" / "everloop" / "profiles.toml"
    assert nobody.code == 1
    assert "does not know who calls" in nobody.err
    assert "everloop profiles add" in nobody.err
    assert added.code == 0, added.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "API key" in listed.out
    assert (sent.code, sent.out) == (0, "Hello, Anna.\n")
    assert (refused.code, removed.code) == (2, 0)
    for ran in (nobody, added, listed, sent, refused, removed):
        assert key not in ran.out + ran.err
    assert key not in file.read_text()


@pytest.mark.slow
async def test_an_approver_lets_a_call_of_somebody_else_run(service: Service, tmp_path: Path) -> None:
    """Each has a profile with a token. Neither the owner nor a stranger may; an expired token is reported."""
    issuer = SigningKey()
    scopes = {"ann": f"{READ} {WRITE}", "eve": f"{READ} {WRITE}", "boss": f"{READ} {APPROVE}"}
    tokens = {name: seed_secret(issuer.token(sub=name, scope=scope)) for name, scope in scopes.items()}
    settings = {"EVERLOOP_JWT_ISSUER": ISSUER, "EVERLOOP_JWT_AUDIENCE": AUDIENCE, "EVERLOOP_AUTH": "jwt"}
    key = str(issuer.write(tmp_path / "key.pem"))
    gateway = await service.everloop.add_gateway(**settings, EVERLOOP_JWT_PUBLIC_KEY_FILE=key)
    shell, renewed, told = Shell(tmp_path), tmp_path / "token", list[Ran]()
    for name in ("ann", "eve"):
        arguments = ("profiles", "add", name, gateway.url, "--agent", "clerk", "--auth", "token")
        told.append(await shell.run(*arguments, stdin=tokens[name]))
    renewed.write_text(issuer.token(sub="boss", exp=1))
    told.append(await shell.run("profiles", "add", "boss", gateway.url, "--token-file", str(renewed)))

    service.script([Reply([call("refund", {"amount": 5})]), Reply(["It is on its way."])])
    sent = await shell.run("send", "Give 5 back", "--profile", "ann", "--json")
    task = json.loads(sent.out)["id"]

    async def approve(name: str, *more: str) -> Ran:
        return await shell.run("tasks", "approve", task, "--profile", name, "--note", "as promised", *more)

    by_ann, by_eve, too_late = await approve("ann"), await approve("eve"), await approve("boss")
    renewed.write_text(tokens["boss"])
    async with shell.terminal("tasks", "approve", task, "--profile", "boss") as terminal:
        await terminal.until('"amount": 5')
        await terminal.until("arrow keys")
        terminal.type(CTRL_D)
        assert await terminal.ended() == 130
    approved, again = await approve("boss", "--json"), await approve("boss")
    done = await shell.run("tasks", "watch", task, "--profile", "ann")
    gateway.process.stop()
    waiting, told = json.loads(sent.out)["questions"], [*told, sent, by_ann, by_eve, too_late, approved, done]
    assert [ran.code for ran in told] == [0, 0, 0, 6, 6, 1, 1, 0, 0]
    assert [question["approvers"] for question in waiting] == [APPROVE]
    assert f"this waits for somebody with the scope {APPROVE}" in by_ann.err
    assert f"no task {task!r} here" in by_eve.err
    assert "the token has expired" in too_late.err
    assert f"Renew the token in {renewed}" in too_late.err
    assert f"nothing of task {task} waits for you: it has been answered already" in again.err
    decided = json.loads(approved.out)
    assert (decided["question"], decided["approved"], again.code) == (waiting[0]["id"], True, 1)
    assert done.out == "It is on its way.\n"
    assert service.model.requests[-1].tool_results == ["refunded 5"]
    assert [token for token in tokens.values() if any(token in ran.out + ran.err for ran in told)] == []


async def test_a_file_with_secrets_that_others_could_read_is_closed(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "config" / "everloop" / "profiles.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[profiles.work]\nurl = "http://127.0.0.1:1"\ntoken = "{SECRET}"\n')
    file.chmod(0o644)
    ran = await shell.run("profiles", "list", "--json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "closed" in ran.err
    (listed,) = json.loads(ran.out)["profiles"]
    assert (listed["agent"], listed["auth"]) == ("", "token")
    assert SECRET not in ran.out + ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("profiles = [", "is no TOML"),
        ("[profiles.work]\nurl = 1\ntoken = 'not-to-be-shown-4711'\n", "profiles.work.url"),
        ("[profiles.work]\nurl = 'http://h'\ntokn = 'not-to-be-shown-4711'\n", "profiles.work.tokn"),
        ("default = 'home'\n", "there is no profile 'home'"),
        ("[profiles.work]\nurl = 'http://h'\ncert = 'c.pem'\n", "cert and cert_key go together"),
    ],
)
async def test_a_file_that_is_wrong_is_one_line_without_secrets(
    shell: Shell, tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "config" / "everloop" / "profiles.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    ran = await shell.run("agents", "--profile", "work")
    assert ran.code == 1
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1
    assert SECRET not in ran.err


async def test_a_profile_may_have_a_client_certificate(
    service: Service, shell: Shell, tmp_path: Path
) -> None:
    """Behind a proxy that requires one; `ca` is the trusted authority."""
    server, caller = certificate_files("localhost", tmp_path), certificate_files("caller", tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)
    context.load_verify_locations(caller)
    context.verify_mode = ssl.CERT_REQUIRED
    async with running_tls_proxy(urlsplit(service.gateway.url).port or 0, context) as port:
        url, trusted = f"https://localhost:{port}", ("--ca", str(server))
        own = ("--cert", str(caller), "--cert-key", str(caller))
        await shell.run("profiles", "add", "tls", url, *trusted, *own, "--default")
        await shell.run("profiles", "add", "bare", url, *trusted)
        known = await Shell(tmp_path, {"EVERLOOP_PROFILE": ""}).run("agents", "--json")
        bare = await shell.run("agents", "--profile", "bare")
        strange = await shell.run("agents", "--profile", url)
        half = await shell.run("profiles", "add", "half", url, "--cert", str(caller))
    assert known.code == 0, known.err
    assert bare.code == 1
    assert "give --cert and --cert-key to `everloop profiles add`" in bare.err
    assert (strange.code, "no answer from" in strange.err) == (1, False)
    assert "is not trusted (self-signed certificate); " in strange.err
    assert "give --ca with the certificates to trust to `everloop profiles add`" in strange.err
    assert (half.code, "give both" in half.err) == (2, True)


async def test_what_runs_in_this_folder_is_found_without_any_setting(
    service: Service, tmp_path: Path
) -> None:
    """By the ports that `everloop up` and `dev` record; a folder without running servers has none."""
    state = tmp_path / ".everloop"
    state.mkdir()
    shell = Shell(tmp_path)
    ports = {"gateway": urlsplit(service.gateway.url).port}
    (state / "ports.json").write_text(json.dumps(ports))
    here = await shell.run("agents", "--json")
    (state / "ports.json").write_text(json.dumps({"gateway": free_port()}))
    gone = await shell.run("agents", "--json")
    assert service.gateway.url in here.out
    assert "http://127.0.0.1:8080" in gone.out + gone.err  # another user's servers may run there


async def test_a_doctor_finds_all_well(service: Service, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {**service.everloop.environment, "EVERLOOP_PROFILE": service.gateway.url})
    ran = await shell.run("doctor", "--json")
    told = json.loads(ran.out)
    states = {each["check"]: each["state"] for each in told["findings"]}
    assert states | {"model": "", "redis": "", "ports": ""} == {
        **dict.fromkeys(("versions", "settings", "temporal", "namespace", "search attributes"), "ok"),
        **dict.fromkeys(("workers", "clocks", "blobs", "gateway"), "ok"),
        **dict.fromkeys(("model", "redis", "ports"), ""),
    }
    assert (ran.code, told["ok"]) == (0, True), ran.out


async def test_a_doctor_takes_what_dev_takes_from_its_file(service: Service, tmp_path: Path) -> None:
    """A model in `.env` alone is checked, with the key there; the environment wins."""
    (tmp_path / ".env").write_text("EVERLOOP_MODEL=deepseek/x\nEVERLOOP_REDIS_URL=redis://nowhere:1/0\n")
    variables = {**service.everloop.environment, "EVERLOOP_PROFILE": service.gateway.url}
    variables.pop("EVERLOOP_MODEL", None)
    shell = Shell(tmp_path, variables)
    ran = await shell.run("doctor", "--json")
    said = {each["check"]: each["says"] for each in json.loads(ran.out)["findings"]}
    assert "1 of them by .env" in said["settings"]
    assert "deepseek/x" in said["model"]
    assert "nowhere" not in said["redis"]


async def test_a_doctor_says_what_is_wrong_and_what_to_do(service: Service, tmp_path: Path) -> None:
    """A namespace without search attributes and workers, no Redis, a model without its key, a taken port."""
    environment = service.everloop.environment
    variables = {**environment, "EVERLOOP_PROFILE": f"http://{LOOPBACK}:1", "EVERLOOP_MODEL": "deepseek/x"}
    variables |= {"EVERLOOP_TASK_QUEUE": "nobody", "EVERLOOP_REDIS_URL": f"redis://:{SECRET}@{LOOPBACK}:1/0"}
    variables |= {
        "EVERLOOP_PORT": str(urlsplit(service.everloop.redis_url).port),
        "TEMPORAL_NAMESPACE": "bare",
    }
    shell = Shell(tmp_path, variables)
    namespace = ("--namespace", "bare", "--retention", "250h")
    await shell.run("temporal", "operator", "namespace", "create", *namespace)
    ran = await shell.run("doctor")
    said = {
        name: says
        for state, name, says in (
            (line[:9].strip(), line[9:28].strip(), line[28:]) for line in ran.out.splitlines()
        )
        if state == "problem"
    }
    assert ran.code == 1
    assert said.keys() == {"search attributes", "workers", "redis", "model", "ports", "gateway"}, ran.out
    assert (
        "search-attribute create --namespace bare --name AgentId --type Keyword" in said["search attributes"]
    )
    assert "Set EVERLOOP_TOOL_RECORD_TTL_DAYS to 11" in ran.out
    assert "everloop worker" in said["workers"]
    assert "DEEPSEEK_API_KEY is not set" in said["model"]
    assert "EVERLOOP_PORT" in said["ports"]
    assert SECRET not in ran.out + ran.err
    assert "Traceback" not in ran.out + ran.err
