#!/bin/sh
# add_build.sh OVERLAY BUILD: let a copy of deploy/kubernetes/overlays/production start the workers of a build, and
# gateways of the same images. Workers of older builds are no part of it, and stay in the cluster until their tasks
# have ended. REGISTRY is where the images are, with a slash at its end.
set -eu
overlay=$1 build=$2
mv "$overlay/builds/1" "$overlay/builds/$build"
sed -i.bak \
  -e "s|\"-1\"|\"-$build\"|" -e "s|\"1\"|\"$build\"|" -e "s|workflows-1|workflows-$build|" \
  -e "s|registry.example.org/everloop-|${REGISTRY}my-|" "$overlay/builds/$build/kustomization.yaml"
sed -i.bak \
  -e "s|builds/1|builds/$build|" \
  -e "s|registry.example.org/everloop-gateway, newTag: [^}]*|${REGISTRY}my-gateway, newTag: \"$build\"|" \
  "$overlay/kustomization.yaml"
