"""What an HDF5 file may hold before anything of it is read: numbers and texts that lie in the file itself.

HDF5 can do more: data in other files (external storage, virtual datasets, links), code of others (filters that are
loaded), sizes that have nothing to do with the file's. Files come from others.
"""

from __future__ import annotations

from typing import Any

from dpjax.errors import InputError, require

#: Filters that HDF5 has itself and that our writer uses: deflate, shuffle, fletcher32.
_FILTERS = (1, 2, 3)
#: Deflate packs at most about 1,030 bytes into one; small files may hold empty dimensions.
_LARGEST_RATIO, _ALLOWANCE = 1100, 2**20


def check_hdf5(file: Any, size: int) -> None:
    """Refuse what a file of draws has no use for.

    Args:
        file: an open `h5py.File`.
        size: bytes of the file.

    Raises:
        InputError: links but hard ones, data outside of the file, filters but HDF5's own, types but real numbers and
            text, or more data than the file can hold.
    """
    h5py = require("h5py", "reading a posterior")
    groups, seen, total = [file["/"]], set(), 0
    while groups:
        group = groups.pop()
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:  # a hard link may lead back
            continue
        seen.add(address)
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise InputError("holds a link to another place, which a file of draws does not")
            item = group[name]
            if isinstance(item, h5py.Group):
                groups.append(item)
            elif isinstance(item, h5py.Dataset):
                total += _checked_size(h5py, item)
            else:
                raise InputError("holds a type of its own, which a file of draws does not")
    if total > _LARGEST_RATIO * size + _ALLOWANCE:
        raise InputError("states sizes that cannot lie in the file")


def _checked_size(h5py: Any, data: Any) -> int:
    how = data.id.get_create_plist()
    if how.get_external_count() or data.is_virtual:
        raise InputError("keeps data in other files, which a file of draws does not")
    if any(how.get_filter(i)[0] not in _FILTERS for i in range(how.get_nfilters())):
        raise InputError("is packed by a filter that is not HDF5's own")
    number = data.dtype.kind in "fiu" and data.dtype.itemsize <= 8
    if not (number or data.dtype.kind == "S" or h5py.check_string_dtype(data.dtype) is not None):
        raise InputError(f"holds data that are neither real numbers nor text ({str(data.dtype)[:40]})")
    return int(data.nbytes)


__all__ = ["check_hdf5"]
