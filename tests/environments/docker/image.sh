#!/bin/bash
# image.sh TARFILE: the file system of a small image with Python 3.11 and a busybox shell, made of this Debian machine's own files.
# Nothing is downloaded. The result is for `docker import`.
set -euo pipefail
target=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{dev,etc,proc,sys,tmp,usr/bin,usr/lib,usr/lib64}
for folder in bin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done

cp -a /usr/bin/python3.11 "$root/usr/bin/"
ln -s python3.11 "$root/usr/bin/python3"
cp -a /usr/lib/python3.11 "$root/usr/lib/"
for part in test idlelib tkinter ensurepip lib2to3 turtledemo pydoc_data distutils; do rm -rf "$root/usr/lib/python3.11/$part"; done
rm -rf "$root"/usr/lib/python3.11/config-*
find "$root" -name __pycache__ -prune -exec rm -rf {} +

cp -L /usr/bin/busybox "$root/usr/bin/"
for applet in sh sleep echo cat wget nc ls ps kill true false env date id; do ln -s busybox "$root/usr/bin/$applet"; done

# The shared libraries that Python and its modules load.
ldd /usr/bin/python3.11 /usr/lib/python3.11/lib-dynload/*.so | grep -oE '/[^ :()]+\.so[^ :()]*' | sort -u |
  { grep -v '^/usr/lib/python3' || true; } | while read -r library; do cp -L --parents "$library" "$root/"; done

# Byte code with paths as they are inside the image, so that a container starts fast.
/usr/bin/python3.11 -m compileall -q -s "$root" -p / "$root/usr/lib/python3.11" >/dev/null || true
tar -C "$root" -cf "$target.part" .
mv "$target.part" "$target"
