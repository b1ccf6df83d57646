// Package pki makes the certificates that let clients and the server trust each other, on first start and
// without asking: a certificate authority and an administrator's client certificate and token, kept in one
// directory, and a server certificate that lives in memory. All of them are renewed in time, also while a server runs
// (KeepRenewed), for the keys that they have.
//
// Guarantees: the directory has mode 0700 and secret files 0600, and looser ones are refused, as are links and what
// belongs to another user (see package internal/datadir); files appear whole or not at all, also after a crash;
// damaged, foreign or expired files are refused with one line that names the file and the remedy, and are never
// replaced on their own, because every kubeconfig depends on them. Several processes may call Ensure on one directory
// at the same time.
//
// Files: ca.crt, ca.key, admin.crt, admin.key (PEM), admin.token (text), token.keys (PEM, see TokenKeys).
//
// It does not decide whom a certificate or token stands for; see package authn.
package pki
