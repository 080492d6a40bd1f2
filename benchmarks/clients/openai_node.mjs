// Driver of openai-node: BASE_URL MODEL PATH_OF_THE_PACKAGE. See common.py for the form of the lines.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [baseURL, model, path] = process.argv.slice(2);
const { default: OpenAI } = await import(pathToFileURL(path).href);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0, timeout: 300_000 });

const usageOf = (u) =>
  u && {
    prompt: u.prompt_tokens ?? u.input_tokens,
    completion: u.completion_tokens ?? u.output_tokens,
    cached: u.prompt_tokens_details?.cached_tokens ?? 0,
  };

async function chat({ prompt, params, stream, cancel_after }) {
  const body = { model, messages: [{ role: "user", content: prompt }], ...params };
  if (stream) return streamed(body, cancel_after);
  const answer = await client.chat.completions.create(body);
  const choices = answer.choices;
  return {
    texts: choices.map((c) => c.message.content ?? ""),
    finish: choices.map((c) => c.finish_reason),
    calls: choices.map((c) =>
      (c.message.tool_calls ?? []).map((t) => ({ name: t.function.name, arguments: t.function.arguments })),
    ),
    logprobs: choices.map((c) => (c.logprobs?.content ?? []).map((p) => [p.logprob, p.top_logprobs.length])),
    usage: usageOf(answer.usage),
  };
}

async function streamed(body, cancelAfter) {
  const options = { stream: true, stream_options: { include_usage: true } };
  const stream = await client.chat.completions.create({ ...body, ...options });
  const texts = [];
  let first = 0;
  let usage = null;
  for await (const chunk of stream) {
    usage = usageOf(chunk.usage) ?? usage;
    const text = chunk.choices[0]?.delta?.content;
    if (!text) continue;
    if (texts.length === 0) first = performance.now();
    texts.push(text);
    if (cancelAfter && texts.length >= cancelAfter) {
      stream.controller.abort();
      break;
    }
  }
  const seconds = (performance.now() - first) / 1000 / Math.max(1, texts.length - 1);
  return { texts: [texts.join("")], chunks: texts.length, seconds_per_chunk: seconds, usage };
}

async function completions({ prompt, params }) {
  const answer = await client.completions.create({ model, prompt, ...params });
  return {
    texts: answer.choices.map((c) => c.text),
    finish: answer.choices.map((c) => c.finish_reason),
    usage: usageOf(answer.usage),
  };
}

async function responses({ prompt, params }) {
  const answer = await client.responses.create({ model, input: prompt, ...params });
  return { texts: [answer.output_text], finish: [answer.status], usage: usageOf(answer.usage) };
}

const APIS = { chat, completions, responses };

function described(error) {
  return {
    class: error.constructor.name,
    status: error.status ?? null,
    code: error.code ?? null,
    param: error.param ?? null,
    message: error.error?.message ?? String(error.message),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let result;
  try {
    result = await APIS[request.api](request);
  } catch (error) {
    result = { error: described(error) };
  }
  process.stdout.write(JSON.stringify(result) + "\n");
}
