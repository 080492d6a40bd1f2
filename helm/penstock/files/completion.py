# `helm test` runs this in a pod: python3 -c THIS URL MODEL
import json
import sys
import time
import urllib.request

url, model = sys.argv[1:3]


def ask(path, body=None):
    request = urllib.request.Request(url + path, data=body and json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


deadline = time.monotonic() + 240
while True:
    try:
        served = [entry["id"] for entry in ask("/v1/models")["data"]]
    except OSError as error:
        served = [f"no response: {error}"]
    if model in served:
        break
    if time.monotonic() > deadline:
        sys.exit(f"{url}/v1/models does not list {model}: {served}")
    time.sleep(5)

question = [{"role": "user", "content": "Say hello."}]
got = ask("/v1/chat/completions", {"model": model, "messages": question, "max_tokens": 16})
choice, usage = got["choices"][0], got["usage"]
print(json.dumps(choice, ensure_ascii=False), json.dumps(usage))
if not usage["completion_tokens"] or choice["finish_reason"] not in ("stop", "length"):
    sys.exit("the completion is empty")
