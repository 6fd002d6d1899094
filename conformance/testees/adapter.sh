#!/bin/sh
# How little an adapter needs. The program writer_ref stands for a program with an SDK in it: it
# publishes once and is never changed.
#
# usage: adapter.sh [WRITER_REF]

writer=${1:-$(dirname "$0")/writer_ref}
[ -x "$writer" ] || writer=writer_ref # a copy finds it in PATH
folder=$(mktemp -d) || exit 1
mkfifo "$folder/arguments" "$folder/published" || exit 1
# Waits for the arguments, one a line, and becomes the writer: exec keeps the number that hello says.
(
  trap 'exit 0' EXIT TERM # no crash if it ends before it publishes: dash cannot go on to open the pipe
  set --
  while IFS= read -r argument; do set -- "$@" "$argument"; done 2>/dev/null <"$folder/arguments"
  trap - EXIT
  exec "$writer" "$@" >"$folder/published"
) &
publisher=$!
trap 'kill "$publisher" 2>/dev/null; rm -r "$folder"' EXIT
published=no

# Two arguments for each attribute in the list $1: the option $2, and key and value.
arguments() {
  printf '%s\n' "$1" | grep -o '"key":"[^"]*","value":{"stringValue":"[^"]*"}' |
    sed "s/\"key\":\"\(.*\)\",\"value\":{\"stringValue\":\"\(.*\)\"}/$2\\
\1:string=\2/"
}

succeed() { printf '{"id":%s,"ok":true%s}\n' "$id" "$1"; }
refuse() { printf '{"id":%s,"ok":false,"error":{"kind":"%s","message":"%s"}}\n' "$id" "$1" "$2"; }

publish() {
  case $request in
    *\\*) refuse failed "this adapter reads no escapes in strings" && return ;;
  esac
  [ "$published" = no ] || { refuse rejected "writer_ref publishes once" && return; }
  published=yes
  # The second of three lines has the attributes of the Resource. With ${request#...} dash needs 20 s
  # for a value of 70000 bytes.
  split=$(printf '%s\n' "$request" | sed 's/"resource":{"attributes":\[/\
/' | sed '2s/\]}/\
/')
  {
    arguments "$(printf '%s\n' "$split" | sed -n 2p)" --resource
    arguments "$(printf '%s\n' "$split" | sed 2d)" --attribute
  } >"$folder/arguments"
  line=
  read -r line <"$folder/published"
  if [ "$line" ]; then
    succeed
  else
    wait "$publisher"
    refuse failed "writer_ref says why on standard error"
  fi
}

while IFS= read -r request; do
  id=$(expr "$request" : '.*"id":\([0-9]*\)')
  op=$(expr "$request" : '.*"op":"\([^"]*\)"')
  case $op in
    hello)
      succeed ",\"v\":1,\"pid\":$publisher,\"adapter\":{\"name\":\"adapter.sh\",\"version\":\"1\"},\"caps\":{\"process.publish\":{}}"
      ;;
    process.publish) publish ;;
    bye) succeed && exit ;;
    *) refuse unsupported "$op" ;;
  esac
done
