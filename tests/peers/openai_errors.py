"""What the OpenAI SDK makes of a refusal: `openai_errors.py BASE_URL MODEL`.

Prints the SDK's exception class, status and message as one JSON document."""

import json
import sys

from openai import APIStatusError, OpenAI

base_url, model = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=30)
try:
    client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
except APIStatusError as error:
    print(json.dumps({"class": type(error).__name__, "status": error.status_code, "message": error.message}))
else:
    sys.exit("the request was accepted")
