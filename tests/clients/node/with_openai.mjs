// openai-node: whole, streamed, by the stream helpers, and by the runner that calls the tools.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { VERSION } from "openai/version";
import { ALL_TURNS, BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, items, run } from "./checks.mjs";

const USAGE = { stream: true, stream_options: { include_usage: true } };
const client = new OpenAI({ baseURL: BASE_URL, apiKey: "none", maxRetries: 0 });
const { completions } = client.chat;

function body(model, turn, more = {}) {
  const offered = turn.tools.length ? { tools: turn.tools } : {};
  return { model, messages: turn.messages, temperature: 0, max_tokens: 120, ...EXTRA, ...offered, ...more };
}

function answerOf(completion, thought) {
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
  return answerOf(completion, completion.choices[0].message.reasoning_content);
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
  const answer = answerOf(await stream.finalChatCompletion(), thought);
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

function question(model, turn, more = {}) {
  const offered = turn.tools.map((tool) => ({ type: "function", strict: false, ...tool.function }));
  const common = { model, input: items(turn.messages), temperature: 0, max_output_tokens: 120, store: false };
  return { ...common, reasoning: ALL_TURNS, ...EXTRA, ...(offered.length ? { tools: offered } : {}), ...more };
}

// It has no finish reason: this is what its items make of it.
function answered({ status, output, output_text: content, usage }) {
  assert.equal(status, "completed");
  const called = output.filter((item) => item.type === "function_call");
  const calls = called.map(({ name, arguments: text }) => [name, JSON.parse(text)]);
  const thoughts = output.filter((item) => item.type === "reasoning").flatMap((item) => item.summary);
  const thought = thoughts.map((part) => part.text).join("");
  const finish = calls.length ? "tool_calls" : "stop";
  return { content, thought, calls, finish, usage: [usage.input_tokens, usage.output_tokens] };
}

async function respond(model, turn) {
  return answered(await client.responses.create(question(model, turn)));
}

// What the pieces make up is what the response at the end says.
async function respondStreamed(model, turn) {
  return gathered(await client.responses.create(question(model, turn, { stream: true })));
}

// What the pieces make up, which is what the response at the end says.
async function gathered(events) {
  const pieces = { output_text: "", reasoning_summary_text: "", function_call_arguments: "" };
  let [number, last] = [0, undefined];
  for await (const event of events) {
    assert.equal(event.sequence_number, number++);
    const [, kind] = event.type.match(/^response\.(\w+)\.delta$/) ?? [];
    if (kind in pieces) pieces[kind] += event.delta;
    last = event;
  }
  const { output } = last.response;
  const text = output.flatMap((item) => (item.type === "message" ? item.content : [])).map((part) => part.text);
  const answer = answered({ ...last.response, output_text: text.join("") });
  const given = output.map((item) => item.arguments ?? "").join("");
  assert.deepEqual(Object.values(pieces), [answer.content, answer.thought, given]);
  return answer;
}

async function respondHelper(model, turn) {
  let done = 0;
  const stream = client.responses.stream(question(model, turn));
  stream.on("event", (event) => (done += event.type === "response.function_call_arguments.done"));
  const answer = answered(await stream.finalResponse());
  assert.equal(done, turn.calls.length);
  return answer;
}

// With the thought that led to the call, of which the client sends back what it cannot read.
async function aResponseGoesOnWithItsOwnItems(model) {
  const turn = TURNS.think_then_call;
  const [thought, call] = (await client.responses.create(question(model, turn))).output;
  assert.deepEqual([call.name, JSON.parse(call.arguments)], turn.calls[0]);
  assert.ok(thought.encrypted_content);
  const result = { type: "function_call_output", call_id: call.call_id, output: WEATHER };
  const input = [...items(turn.messages), { ...thought, summary: [] }, call, result];
  const after = await client.responses.create(question(model, turn, { input }));
  assert.equal(after.output_text, TURNS.follow_up.content);
}

// In a chain and in its conversation, of which the chain is no part.
async function aResponseGoesOnFromWhatIsStored(model) {
  const turn = TURNS.think_then_call;
  const before = items(turn.messages);
  const lastItems = before.splice(-1);
  const conversation = (await client.conversations.create({ items: before })).id;
  const { id, output } = await client.responses.create(question(model, turn, { input: lastItems, conversation, store: true }));
  const input = [{ type: "function_call_output", call_id: output.at(-1).call_id, output: WEATHER }];
  for (const state of [{ previous_response_id: id }, { conversation }]) {
    const stream = client.responses.stream(question(model, turn, { input, store: true, ...state }));
    assert.equal((await stream.finalResponse()).output_text, TURNS.follow_up.content);
  }
  const kinds = [];
  const listed = client.conversations.items.list(conversation, { order: "asc", limit: 5 });
  for await (const { type } of listed) kinds.push(type);
  const called = ["message", "reasoning", "function_call", "function_call_output", "reasoning", "message"];
  assert.deepEqual(kinds, [...called, ...called, ...called]); // as in the two lessons before
}

async function aStreamInTheBackgroundIsLeftAndTakenUpAgain(model) {
  const turn = TURNS.think;
  const request = question(model, turn, { store: true, background: true, stream: true });
  const events = [];
  for await (const event of await client.responses.create(request)) {
    events.push(event);
    if (events.length === 6) break;
  }
  const rest = await client.responses.retrieve(events[0].response.id, { stream: true, starting_after: 5 });
  for await (const event of rest) events.push(event);
  const answer = await gathered(events);
  assert.deepEqual([answer.content, answer.thought.trim()], [turn.content, turn.thought]);
}

const ways = [
  [create, WHOLE],
  [createStreamed, STREAMED],
  [streamHelper, ["think", "parallel"]],
  [respond, ["think"]],
  [respondStreamed, ["think_then_calls"]],
  [respondHelper, ["think", "parallel"]],
];
await run(`openai-node ${VERSION}`, ways, [
  theRunnerCallsATool,
  aResponseGoesOnWithItsOwnItems,
  aResponseGoesOnFromWhatIsStored,
  aStreamInTheBackgroundIsLeftAndTakenUpAgain,
]);
