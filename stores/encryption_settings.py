"""Whether a process encrypts, and with which keys."""

from pathlib import Path

from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from everloop.stores.encryption import NO_CIPHER, Cipher
from everloop.stores.encryption_keys import KeyFileError, read_keys

VARIABLE = "EVERLOOP_ENCRYPTION_KEYS_FILE"


class EncryptionSettings(BaseSettings):
    """The same for all workers, gateways and tools of a deployment.

    EVERLOOP_ENCRYPTION_KEYS_FILE: a file with a line `key-id base64-of-32-bytes` for each key; the first one
    encrypts, all of them decrypt. It is read at start. Default: none; then nothing is encrypted.
    """

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True)

    encryption_keys_file: str = ""

    @field_validator("encryption_keys_file")
    @classmethod
    def validate_keys(cls, path: str) -> str:
        try:
            _read(path)
        except KeyFileError as error:
            raise ValueError(f"{VARIABLE}: {error}") from None
        return path

    @property
    def cipher(self) -> Cipher:
        """What encrypts and decrypts.

        Raises:
            KeyFileError: the file has changed since the settings were read, and is wrong now.
        """
        return _read(self.encryption_keys_file)


def _read(path: str) -> Cipher:
    return read_keys(Path(path)) if path else NO_CIPHER
