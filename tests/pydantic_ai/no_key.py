"""What Pydantic AI's providers say without a key, in their words (the providers' packages are not installed here)."""

from pydantic_ai.exceptions import UserError

raise UserError(
    "Set the `OPENAI_API_KEY` environment variable or pass it via `OpenAIProvider(api_key=...)`"
    "to use the OpenAI provider."
)
