// The AI SDK with its providers for the three APIs: whole, streamed, and with the tools called by it.
import assert from "node:assert/strict";
import { createAnthropic, VERSION as MESSAGES_VERSION } from "@ai-sdk/anthropic";
import { createOpenAI, VERSION as RESPONSES_VERSION } from "@ai-sdk/openai";
import { createOpenAICompatible, VERSION } from "@ai-sdk/openai-compatible";
import { Output, generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import { ALL_TURNS, BASE_URL, EXTRA, MESSAGE_EXTRA, SIGNATURE, STREAMED, TURNS, WEATHER, WHOLE, run } from "./checks.mjs";

const chat = createOpenAICompatible({ name: "gateway", baseURL: BASE_URL, includeUsage: true });
// What this provider sends to OpenAI's own models only.
const STATELESS = { ...EXTRA, reasoning: ALL_TURNS, include: ["reasoning.encrypted_content"] };
const { responses } = createOpenAI({ baseURL: BASE_URL, apiKey: "none", fetch: withMore(STATELESS) });
const messages = createAnthropic({ baseURL: BASE_URL, apiKey: "none", fetch: withMore(MESSAGE_EXTRA) });
const FOREIGN = { anthropic: { signature: "of another service" } }; // without one, it leaves a thought out

function withMore(more) {
  return (url, init) => fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), ...more }) });
}

function callSettings(model, turn, execute) {
  const messages = model.provider.startsWith("openai") ? turn.tagged : turn.messages; // it sends only its own thoughts back
  return {
    model,
    messages: messages.map(message),
    tools: Object.fromEntries(turn.tools.map((each) => [each.function.name, offered(each.function, execute)])),
    temperature: 0,
    maxOutputTokens: 120,
    maxRetries: 0,
    providerOptions: { gateway: EXTRA, openai: { store: false } },
    onError: () => {}, // told by what is awaited
  };
}

function offered({ name, description, parameters }, execute) {
  const call = execute && { execute: (given) => execute(name, given) };
  return tool({ description, inputSchema: jsonSchema(parameters), ...call });
}

function message({ role, content, reasoning_content: thought, tool_calls: calls = [], tool_call_id: id }) {
  if (role === "user") return { role, content };
  if (role === "tool") {
    const output = { type: "text", value: content };
    return { role, content: [{ type: "tool-result", toolCallId: id, toolName: "get_weather", output }] };
  }
  const parts = calls.map((call) => ({
    type: "tool-call",
    toolCallId: call.id,
    toolName: call.function.name,
    input: JSON.parse(call.function.arguments),
  }));
  const texts = [
    ["reasoning", thought],
    ["text", content],
  ];
  const kept = texts.filter(([, text]) => text);
  return { role, content: [...kept.map(([type, text]) => ({ type, text, providerOptions: FOREIGN })), ...parts] };
}

async function answerOf(result) {
  const [content, thought, calls, finish, usage] = await Promise.all([
    result.text,
    result.reasoningText,
    result.toolCalls,
    result.finishReason,
    result.usage,
  ]);
  return {
    content,
    thought,
    calls: calls.map(({ toolName, input }) => [toolName, input]),
    finish: finish.replace("-", "_"),
    usage: [usage.inputTokens, usage.outputTokens],
  };
}

async function whole(model, turn) {
  return answerOf(await generateText(callSettings(model, turn)));
}

async function streamed(model, turn) {
  const result = streamText(callSettings(model, turn));
  const kinds = [];
  for await (const part of result.fullStream) kinds.push(part.type);
  assert.ok(!kinds.includes("error") && !kinds.includes("tool-error"), kinds.join());
  assert.equal(kinds.filter((kind) => kind === "tool-call").length, turn.calls.length);
  assert.equal(kinds.includes("reasoning-delta"), turn.thought !== "");
  return answerOf(result);
}

async function loop(model, turn = TURNS.single) {
  const called = [];
  const execute = (name, given) => (called.push([name, given]), JSON.parse(WEATHER));
  const result = streamText({ ...callSettings(model, turn, execute), stopWhen: isStepCount(3), include: { requestBody: true } });
  assert.equal(await result.text, TURNS.follow_up.content);
  assert.deepEqual(called, turn.calls);
  const steps = await result.steps;
  assert.equal(steps.length, 2);
  return JSON.stringify(steps[1].request.body);
}

async function aThoughtGoesBackWithTheCall(model) {
  const sent = await loop(responses(model), TURNS.think_then_call);
  assert.ok(sent.includes("encrypted_content") && sent.includes(TURNS.think_then_call.thought), sent);
}

async function aThoughtGoesBackWithItsSignature(model) {
  const sent = await loop(messages(model), TURNS.think_then_call);
  assert.ok(sent.includes(`"signature":"${SIGNATURE}`) && sent.includes(TURNS.think_then_call.thought), sent);
}

async function anObjectIsGenerated(model) {
  const schema = jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false });
  const { output } = await generateText({
    model: messages(model),
    output: Output.object({ schema }),
    prompt: "Which city? The city is Paris.",
    temperature: 0,
    maxOutputTokens: 60,
    maxRetries: 0,
    providerOptions: { anthropic: { structuredOutputMode: "outputFormat" } }, // else it forces a call of a tool
  });
  assert.equal(typeof output.city, "string");
}

const generate = (model, turn) => whole(chat(model), turn);
const stream = (model, turn) => streamed(chat(model), turn);
const generateResponses = (model, turn) => whole(responses(model), turn);
const streamResponses = (model, turn) => streamed(responses(model), turn);
const generateMessages = (model, turn) => whole(messages(model), turn);
const streamMessages = (model, turn) => streamed(messages(model), turn);
const theToolIsCalled = (model) => loop(chat(model));
const theToolIsCalledByResponses = (model) => loop(responses(model));

const ways = [
  [generate, WHOLE],
  [stream, STREAMED],
  [generateResponses, ["think"]],
  [streamResponses, ["think_then_calls"]],
  [generateMessages, ["think"]],
  [streamMessages, ["think_then_calls"]],
];
await run(`AI SDK (openai-compatible ${VERSION}, openai ${RESPONSES_VERSION}, anthropic ${MESSAGES_VERSION})`, ways, [
  theToolIsCalled,
  theToolIsCalledByResponses,
  aThoughtGoesBackWithTheCall,
  aThoughtGoesBackWithItsSignature,
  anObjectIsGenerated,
]);
