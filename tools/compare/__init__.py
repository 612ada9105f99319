# SPDX-License-Identifier: BSL-1.0
"""`./neap compare`: one workload file, two arms or more, one table and one page (docs/compare.md).

plan.py reads the file, units.py runs, folder.py keeps, figures.py averages, table.py and page.py show, store.py exports.
"""
