"""Makes the bucket that EVERLOOP_S3_BUCKET names, unless it exists; compose.yaml runs it before workers."""

import sys
from http import HTTPStatus

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from everloop.stores.blobs.blob_settings import BlobSettings


def create_bucket(settings: BlobSettings) -> None:
    """Make the bucket of these settings; one that is ours already stays as it is.

    Raises:
        BotoCoreError: the store does not answer.
        ClientError: it refuses.
    """
    s3 = boto3.client("s3", endpoint_url=settings.s3_endpoint or None)
    try:
        s3.head_bucket(Bucket=settings.s3_bucket)
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != HTTPStatus.NOT_FOUND:
            raise
        s3.create_bucket(Bucket=settings.s3_bucket)


if __name__ == "__main__":
    try:
        create_bucket(BlobSettings())
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"the bucket could not be made: {error}")
