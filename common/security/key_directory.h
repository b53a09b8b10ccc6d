// The key directory of a service or a fleet: <name>.curve.{secret,public}, <name>.sign.{secret,public}, allow.list,
// signers.list. Secret files are created with mode 0600 and refused when group or others can read them; one that
// another user owns may be readable by its group.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/security/allow_list.h"
#include "common/security/signer_list.h"
#include "common/security/signing.h"
#include "common/security/transport_keys.h"

namespace kiln {

// Stateless beyond its path; methods read and write files. Not for concurrent writers.
class KeyDirectory {
 public:
  // NotFound for a directory that is not there. Whoever uses keys opens a directory; only what makes the keys of a
  // fleet creates one (with mode 0700) and calls the LoadOrCreate functions: a service that is given another one's
  // directory must fail, not fill it with secrets of its own.
  static Result<KeyDirectory> Open(const std::string& path);
  static Result<KeyDirectory> Create(const std::string& path);

  const std::string& path() const { return path_; }

  // Loads the pair called `name` ("cache", "compile", "worker"), creating it first if neither file exists.
  Result<CurveKeyPair> LoadOrCreateCurve(std::string_view name) const;
  Result<CurveKeyPair> LoadCurve(std::string_view name) const;
  Result<std::string> LoadCurvePublic(std::string_view name) const;
  // Keeps the public half of a pair whose secret lies elsewhere; replaces another one of that name.
  Status StoreCurvePublic(std::string_view name, std::string_view public_z85) const;
  Result<SigningKey> LoadOrCreateSigning(std::string_view name) const;
  Result<SigningKey> LoadSigning(std::string_view name) const;
  bool HasCurve(std::string_view name) const;

  // allow.list and signers.list. A missing file is NotFound.
  Result<AllowList> LoadAllowList() const;
  Result<TrustedSigners> LoadTrustedSigners() const;
  // Appends an entry unless it is there already; creates the file if it is absent.
  Status Allow(Role role, std::string_view public_z85, std::string_view label) const;
  Status Trust(const SignPublicKey& key, std::string_view label) const;

  // What a listening service named `name` needs: its pair and the allow-list. NotFound, with what the directory does
  // hold, where the pair is another one's.
  Result<ServerSecurity> ServerFor(std::string_view name) const;
  // Reads allow.list and signers.list again into what ServerFor and a SignerList made of them; both stay as they were
  // when either cannot be read. `signers` may be null.
  Status Reload(const ServerSecurity& security, SignerList* signers) const;
  // What a client named `name` needs to reach the service named `server`.
  Result<ClientSecurity> ClientFor(std::string_view name, std::string_view server) const;

 private:
  explicit KeyDirectory(std::string path) : path_(std::move(path)) {}
  std::string File(std::string_view name, std::string_view suffix) const;
  Result<CurveKeyPair> LoadOwnCurve(std::string_view name) const;

  std::string path_;
};

// Whole small text file (1 MiB at most). NotFound names the path.
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace kiln
