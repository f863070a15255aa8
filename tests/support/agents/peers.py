"""An agent that calls an agent of another deployment, whose address is in the environment."""

import os
from datetime import timedelta

from everloop.agents.agent import Agent
from everloop.agents.peer.peer_plugin import peer
from everloop.agents.plugins import prompt

PEER_URL = "EVERLOOP_TEST_PEER_URL"

agent = Agent(
    id="asker",
    name="Asker",
    description="Asks a colleague elsewhere.",
    model="scripted",
    plugins=[
        prompt("Follow the script."),
        peer(os.environ.get(PEER_URL, "http://127.0.0.1:1"), name="colleague", timeout=timedelta(seconds=60)),
    ],
)
