// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// ServerName is whom certificates of servers here are for.
const ServerName = "narthex.example"

// Certificate makes a certificate for ServerName that vouches for itself, and its key, both
// as PEM. It is valid for a day.
func Certificate() (certificate, key []byte, err error) {
	fail := func(err error) ([]byte, []byte, error) { return nil, nil, fmt.Errorf("make a certificate: %w", err) }
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: ServerName},
		DNSNames:     []string{ServerName},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		return fail(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fail(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// writeCertificate writes a certificate and its key to a folder.
func writeCertificate(dir string) error {
	certificate, key, err := Certificate()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "certificate.pem"), certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "key.pem"), key, 0o600)
}
