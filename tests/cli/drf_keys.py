"""Issue keys with djangorestframework-api-key in a database of SQLite, and print them as JSON.

Run as a process of its own, since Django is configured once per process.
"""

import json
import sys
from datetime import UTC, datetime

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["rest_framework_api_key"],
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402 - after the settings
from rest_framework_api_key.models import APIKey  # noqa: E402

call_command("migrate", verbosity=0)
_, live = APIKey.objects.create_key(name="render farm")
_, dated = APIKey.objects.create_key(name="dated", expiry_date=datetime(2099, 1, 1, tzinfo=UTC))
gone, revoked = APIKey.objects.create_key(name="gone")
gone.revoked = True
gone.save()
_, expired = APIKey.objects.create_key(name="past", expiry_date=datetime(2020, 1, 1, tzinfo=UTC))
call_command("dumpdata", "rest_framework_api_key", format="jsonl", output=sys.argv[2], verbosity=0)
print(json.dumps({"live": live, "dated": dated, "revoked": revoked, "expired": expired}))
