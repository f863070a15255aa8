"""Who may ask whom in Kubernetes: the policies of deploy/kubernetes, and what settings of processes need."""

import re
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from tests.support.deploy.manifests import (
    OVERLAYS,
    ROOT,
    TOLD_TO_CLIENTS,
    Address,
    Resource,
    addresses,
    environment_of,
    of_kind,
    only_container,
    pod_templates,
    rendered,
    selects,
)

OUTSIDE = "0.0.0.0/0"
"""Where models, S3 and the issuers of tokens are, reached by https."""


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nothing_passes_that_no_policy_names(overlay: str) -> None:
    """One policy denies all to all pods; what may come in leads to ports that the containers have."""
    resources = rendered(overlay)
    templates = pod_templates(resources).values()
    policies = of_kind(resources, "NetworkPolicy")
    (deny,) = (each for each in policies if each["metadata"]["name"] == "everloop-deny")

    assert sorted(deny["spec"]) == ["podSelector", "policyTypes"]
    assert all(selects(deny["spec"]["podSelector"], template) for template in templates)
    for policy in policies:
        reached = [one for one in templates if selects(policy["spec"]["podSelector"], one)]
        known = {port["containerPort"] for one in reached for port in only_container(one)["ports"]}
        wanted = {port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]}
        assert wanted <= known


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_process_is_let_out_to_where_its_settings_lead(overlay: str) -> None:
    """To Temporal, the collector, Redis (its URL: docs/operation/deployment.md), https outside, and names."""
    resources = rendered(overlay)
    for name, template in pod_templates(resources).items():
        allowed = set(_ways_out(resources, template))
        told = environment_of(template, resources)
        values = [value for variable, value in told.items() if variable not in TOLD_TO_CLIENTS]
        asked = set[Address]().union(*map(addresses, [*values, _redis_of_the_guide()]))
        assert {port for _, port in asked} == {4318, 6379, 7233}, name
        wanted = {(_place(host), "TCP", port) for host, port in asked}
        wanted |= {("kube-system", "TCP", 53), ("kube-system", "UDP", 53), (OUTSIDE, "TCP", 443)}
        assert sorted(wanted - allowed) == [], name


def _redis_of_the_guide() -> str:
    guide = (ROOT / "docs/operation/deployment.md").read_text(encoding="utf-8")
    (url,) = re.findall(r"--from-literal=EVERLOOP_REDIS_URL='(\S+)'", guide)
    return url


def _place(host: str) -> str:
    """Return the namespace of `service.namespace`; other names are not of the cluster."""
    _, _, namespace = host.partition(".")
    return OUTSIDE if "." in namespace else namespace


def _ways_out(resources: Sequence[Resource], template: Resource) -> Iterator[tuple[str, str, int]]:
    """Yield the namespace, or the outside, with each protocol and port that policies open for a pod."""
    policies = [each["spec"] for each in of_kind(resources, "NetworkPolicy")]
    for policy in policies:
        if selects(policy["podSelector"], template) and "Egress" in policy["policyTypes"]:
            for rule in policy.get("egress", []):
                for peer, port in product(rule["to"], rule["ports"]):
                    yield _peer(peer), port["protocol"], port["port"]


def _peer(peer: Resource) -> str:
    if block := peer.get("ipBlock"):
        return OUTSIDE if block["cidr"] == OUTSIDE else ""
    return peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
