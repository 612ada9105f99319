# SPDX-License-Identifier: BSL-1.0
"""Makes the guest and prints its files: `PYTHONPATH=.:tests python3 -m linux_guest` in the checkout."""

from . import guest_image

image = guest_image.build()
print(f"kernel    {image.kernel}\ninitramfs {image.initramfs}\nrelease   {image.release}")
