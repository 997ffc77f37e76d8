// openai-node: whole, streamed, by the stream helper, and by the runner that calls the tools.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { VERSION } from "openai/version";
import { BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, run } from "./checks.mjs";

const USAGE = { stream: true, stream_options: { include_usage: true } };
const { completions } = new OpenAI({ baseURL: BASE_URL, apiKey: "none", maxRetries: 0 }).chat;

function body(model, turn, more = {}) {
  const offered = turn.tools.length ? { tools: turn.tools } : {};
  return { model, messages: turn.messages, temperature: 0, max_tokens: 120, ...EXTRA, ...offered, ...more };
}

function told(completion, thought) {
  const [{ message, finish_reason: finish }] = completion.choices;
  const calls = (message.tool_calls ?? []).map(({ function: { name, arguments: text } }) => [name, JSON.parse(text)]);
  assert.equal(new Set((message.tool_calls ?? []).map((call) => call.id)).size, calls.length);
  return { content: message.content, thought, calls, finish, usage: counted(completion.usage) };
}

function counted(usage) {
  return [usage.prompt_tokens, usage.completion_tokens];
}

async function create(model, turn) {
  const completion = await completions.create(body(model, turn));
  return told(completion, completion.choices[0].message.reasoning_content);
}

// As an application does that knows only what the API promises.
async function createStreamed(model, turn) {
  const [calls, finish, usage] = [[], [], []];
  let [content, thought] = ["", ""];
  for await (const chunk of await completions.create(body(model, turn, USAGE))) {
    if (chunk.usage) usage.push(counted(chunk.usage));
    for (const { delta, finish_reason } of chunk.choices) {
      content += delta.content ?? "";
      thought += delta.reasoning_content ?? "";
      if (finish_reason) finish.push(finish_reason);
      for (const part of delta.tool_calls ?? []) {
        if (part.id) assert.equal(calls.push([part.function.name, ""]), part.index + 1);
        calls[part.index][1] += part.function.arguments ?? "";
      }
    }
  }
  assert.deepEqual([finish.length, usage.length], [1, 1]);
  const parsed = calls.map(([name, text]) => [name, JSON.parse(text)]);
  return { content, thought, calls: parsed, finish: finish[0], usage: usage[0] };
}

async function streamHelper(model, turn) {
  let [thought, done] = ["", 0];
  const stream = completions
    .stream(body(model, turn, USAGE))
    .on("chunk", (chunk) => (thought += chunk.choices[0]?.delta.reasoning_content ?? "")) // it keeps only the last one
    .on("tool_calls.function.arguments.done", () => (done += 1));
  const answer = told(await stream.finalChatCompletion(), thought);
  assert.equal(done, turn.calls.length);
  return answer;
}

async function theRunnerCallsATool(model) {
  const called = [];
  const tools = TURNS.single.tools.map((tool) => ({
    type: "function",
    function: { ...tool.function, parse: JSON.parse, function: (given) => (called.push([tool.function.name, given]), WEATHER) },
  }));
  const runner = completions.runTools(body(model, TURNS.single, { tools, ...USAGE }));
  assert.equal(await runner.finalContent(), TURNS.follow_up.content);
  assert.deepEqual(called, TURNS.single.calls);
  assert.ok((await runner.totalUsage()).completion_tokens > 10);
}

const ways = [
  [create, WHOLE],
  [createStreamed, STREAMED],
  [streamHelper, ["think", "parallel"]],
];
await run(`openai-node ${VERSION}`, ways, [theRunnerCallsATool]);
