"""A companion with long memory: conversations are summarized, facts are stored permanently."""

import asyncio

import facts

from everloop import Agent, HookContext, Memory, ToolContext, async_prompt, prompt, tool, tools


@tool(idempotent=True)
def remember(fact: str, context: ToolContext) -> str:
    """Keep a fact about the user for all conversations to come, in one short sentence."""
    facts.add(context.owner, fact)
    return "kept"


@tool(idempotent=True)
def forget(fact: str, context: ToolContext) -> str:
    """Forget a fact about the user. Give it in the words in which it is known."""
    return "forgotten" if facts.remove(context.owner, fact) else "that was not known in these words"


async def known_facts(context: HookContext) -> str:
    """Return the stored facts about this user for the prompt, before each reply."""
    known = await asyncio.to_thread(facts.of, context.owner)
    return "What you know of the user:\n" + "\n".join(f"- {fact}" for fact in known) if known else ""


agent = Agent(
    id="companion",
    name="Companion",
    description="Talks, and remembers.",
    plugins=[
        prompt(
            "You are somebody to talk to. Remember what the user would expect a friend to remember: names, "
            "plans, what they like. Remember nothing that they would not want written down."
        ),
        async_prompt(known_facts),
        tools(remember, forget),
    ],
    memory=Memory(max_messages=12, max_tokens=6_000, strategy="summary"),
)
