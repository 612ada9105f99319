# SPDX-License-Identifier: BSL-1.0
"""Writes the bill of materials: SPDX 2.3, as JSON. It lists every component, with relationships from each product to its components.

The document has no time of its own but the commit's, and its namespace is made from the commit. So equal releases have equal documents.
"""

import json
import re
import time

from tools.release.components import Component
from tools.release.inventory import Inventory, Product
from tools.release.stage import Stage

NO_ASSERTION = "NOASSERTION"
ROOT = "SPDXRef-neap"
# Licences that SPDX's list does not have, with the component that has their text.
EXTRACTED = {"LicenseRef-newlib": "newlib", "LicenseRef-public-domain": "deb-libselinux1"}


def name(stage: Stage) -> str:
    return f"neap-{stage.wheel_version}.spdx.json"


def document(stage: Stage, inventory: Inventory) -> bytes:
    """Returns the content of the document."""
    packages = [_project(stage), *(_product(stage, product) for product in inventory.products)]
    packages += [_component(component) for component in inventory.components.values()]
    relations = [_relation("SPDXRef-DOCUMENT", "DESCRIBES", ROOT)]
    for product in inventory.products:
        relations.append(_relation(ROOT, "CONTAINS", product_id(product)))
        how = "CONTAINS" if product.is_collection else "STATIC_LINK"
        relations += [_relation(product_id(product), how, component_id(key)) for key in product.linked]
        relations += [_relation(component_id(key), "BUILD_DEPENDENCY_OF", product_id(product)) for key in product.tools]
    used = " ".join(component.licence for component in inventory.components.values())
    record = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"neap-{stage.wheel_version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/neap-{stage.wheel_version}-{stage.revision}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stage.epoch)),
            "creators": [f"Tool: neap-release-{stage.version}"],
        },
        "packages": packages,
        "relationships": relations,
        "hasExtractedLicensingInfos": [
            {"licenseId": licence, "extractedText": inventory.components[key].texts[0][1], "name": licence.removeprefix("LicenseRef-")}
            for licence, key in EXTRACTED.items()
            if licence in used and key in inventory.components
        ],
    }
    return (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()


def _project(stage: Stage) -> dict:
    return {
        **_package(ROOT, "Neap", stage.wheel_version, "BSL-1.0"),
        "primaryPackagePurpose": "OPERATING-SYSTEM",
        "sourceInfo": f"commit {stage.revision}",
    }


def _product(stage: Stage, product: Product) -> dict:
    purpose = "OTHER" if product.is_collection else "APPLICATION"
    return {**_package(product_id(product), product.name, stage.wheel_version, NO_ASSERTION), "primaryPackagePurpose": purpose}


def _component(component: Component) -> dict:
    row = {
        **_package(component_id(component.key), component.name, component.version, component.licence),
        "primaryPackagePurpose": "LIBRARY",
    }
    if component.sha256:
        row["checksums"] = [{"algorithm": "SHA256", "checksumValue": component.sha256}]
    if component.file:
        row["packageFileName"] = component.file
    if component.purl:
        row["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.purl}]
    if component.comment:
        row["comment"] = component.comment
    return row


def _package(identifier: str, title: str, version: str, licence: str) -> dict:
    return {
        "SPDXID": identifier,
        "name": title,
        "versionInfo": version,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": licence,
        "copyrightText": NO_ASSERTION,
    }


def _relation(subject: str, kind: str, target: str) -> dict:
    return {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": target}


def component_id(key: str) -> str:
    return f"SPDXRef-component-{_plain(key)}"


def product_id(product: Product) -> str:
    return f"SPDXRef-product-{_plain(product.name)}"


def _plain(text: str) -> str:
    """Returns a text with only the characters that an identifier of SPDX may have."""
    return re.sub(r"[^A-Za-z0-9.-]", lambda match: f"-{ord(match[0]):x}-", text)
