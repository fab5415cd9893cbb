"""One question with a key: `with_key.py openai|anthropic BASE_URL KEY`, where `-` is the dummy that SDKs insist on.

Prints the answer's text, or the SDK's exception class and status, as one JSON document."""

import json
import sys

import anthropic
import openai

sdk, base_url, key = sys.argv[1:4]
options = {"base_url": base_url, "api_key": "dummy" if key == "-" else key, "max_retries": 0, "timeout": 30}
messages = [{"role": "user", "content": "hi"}]
try:
    if sdk == "openai":
        answer = openai.OpenAI(**options).chat.completions.create(model="assistant", messages=messages)
        text = answer.choices[0].message.content
    else:
        client = anthropic.Anthropic(**options)
        answer = client.messages.create(model="assistant", messages=messages, max_tokens=50)
        text = answer.content[0].text
    print(json.dumps({"text": text}))
except (openai.APIStatusError, anthropic.APIStatusError) as error:
    print(json.dumps({"class": type(error).__name__, "status": error.status_code}))
