// The AI SDK with @ai-sdk/openai-compatible: whole, streamed, and with the tools called by it.
import assert from "node:assert/strict";
import { createOpenAICompatible, VERSION } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import { BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, run } from "./checks.mjs";

const provider = createOpenAICompatible({ name: "gateway", baseURL: BASE_URL, includeUsage: true });

function asked(model, turn, execute) {
  return {
    model: provider(model),
    messages: turn.messages.map(message),
    tools: Object.fromEntries(turn.tools.map((each) => [each.function.name, offered(each.function, execute)])),
    temperature: 0,
    maxOutputTokens: 120,
    maxRetries: 0,
    providerOptions: { gateway: EXTRA },
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
  return { role, content: [...texts.filter(([, text]) => text).map(([type, text]) => ({ type, text })), ...parts] };
}

async function told(result) {
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

async function generate(model, turn) {
  return told(await generateText(asked(model, turn)));
}

async function stream(model, turn) {
  const result = streamText(asked(model, turn));
  const kinds = [];
  for await (const part of result.fullStream) kinds.push(part.type);
  assert.ok(!kinds.includes("error") && !kinds.includes("tool-error"), kinds.join());
  assert.equal(kinds.filter((kind) => kind === "tool-call").length, turn.calls.length);
  assert.equal(kinds.includes("reasoning-delta"), turn.thought !== "");
  return told(result);
}

async function theToolIsCalled(model) {
  const called = [];
  const execute = (name, given) => (called.push([name, given]), JSON.parse(WEATHER));
  const result = streamText({ ...asked(model, TURNS.single, execute), stopWhen: isStepCount(3) });
  assert.equal(await result.text, TURNS.follow_up.content);
  assert.deepEqual(called, TURNS.single.calls);
  assert.equal((await result.steps).length, 2);
}

const ways = [
  [generate, WHOLE],
  [stream, STREAMED],
];
await run(`AI SDK (openai-compatible ${VERSION})`, ways, [theToolIsCalled]);
