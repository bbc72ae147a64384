"""Which recipe adapts a sentence encoder that is good already, and what decides without labels whether to keep it."""
