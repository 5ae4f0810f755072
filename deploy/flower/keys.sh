#!/bin/sh
# Makes what a federation needs for TLS and for the authentication of its nodes, with openssl and ssh-keygen:
#   sh keys.sh FOLDER ADDRESS NODE ...     ADDRESS: the server's, by which nodes reach it: a name or an IP address
# ca.crt goes to every host; server.pem and server.key to the server; NODE.key to that node alone; the server gets
# NODE.pub and registers it. ca.key can make certificates for another server: keep it elsewhere.
set -eu
folder=$1 address=$2
shift 2
mkdir -p "$folder"
cd "$folder"
umask 077
case $address in
    *[!0-9.]*) name="DNS:$address" ;;
    *) name="IP:$address" ;;
esac
[ -f ca.key ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 825 -keyout ca.key -out ca.crt \
    -subj "/CN=FedMatch federation" -addext "basicConstraints=critical,CA:TRUE" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -keyout server.key -out server.csr \
    -subj "/CN=$address" 2>/dev/null
printf 'subjectAltName=%s,IP:127.0.0.1,DNS:localhost\n' "$name" > server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 825 -extfile server.ext -out server.pem \
    2>/dev/null
rm -f server.csr server.ext ca.srl
for node; do
    [ -f "$node.key" ] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "$node" -f "$node.key"
    mv -f "$node.key.pub" "$node.pub" 2>/dev/null || true
done
