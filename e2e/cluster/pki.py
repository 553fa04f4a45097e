"""Certificates and keys of a cluster. Kubernetes and etcd have separate certificate authorities."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster import files

_VALID = datetime.timedelta(days=365)


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its private key. Both files are PEM."""

    cert: Path
    key: Path


def _write_key(path: Path, key: CertificateIssuerPrivateKeyTypes) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.write(path, pem, mode=0o600)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The host's clock may be set back, so let the certificate be valid from five minutes before now.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
    )


class Authority:
    """A certificate authority with the files `<name>-ca.crt` and `<name>-ca.key` in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.pair = Pair(folder / f"{name}-ca.crt", folder / f"{name}-ca.key")
        if self.pair.cert.exists():
            self._cert = x509.load_pem_x509_certificate(self.pair.cert.read_bytes())
            key = serialization.load_pem_private_key(self.pair.key.read_bytes(), password=None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
        else:
            self._create(name)

    def _create(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}-ca")])
        self._cert = (
            _builder(subject, subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        # Write the key first: if the certificate exists, the pair is complete.
        _write_key(self.pair.key, self._key)
        files.write(self.pair.cert, self._cert.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        file: str,
        common_name: str,
        *,
        organizations: Iterable[str] = (),
        names: Iterable[str] = (),
        addresses: Iterable[str] = (),
        client: bool = True,
    ) -> Pair:
        """Issue a certificate for `common_name`.

        With `names` or `addresses` it is valid for a server at these. With `client` it is valid for a
        client.
        """
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] if client else []
        if alternatives:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        builder = _builder(x509.Name(subject), self._cert.subject, key)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        pair = Pair(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        _write_key(pair.key, key)
        files.write(
            pair.cert, builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return pair


def signing_key(folder: Path) -> Pair:
    """Return the key pair for service account tokens. Its `cert` is the public key without a certificate."""
    pair = Pair(folder / "service-accounts.pub", folder / "service-accounts.key")
    if not pair.cert.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_key(pair.key, key)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        files.write(pair.cert, public)
    return pair
