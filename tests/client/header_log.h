#ifndef ANNULUS_TESTS_CLIENT_HEADER_LOG_H_
#define ANNULUS_TESTS_CLIENT_HEADER_LOG_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "grpcpp/support/server_interceptor.h"

namespace annulus {

// Records the value of one metadata key of a server's calls; "" if it is absent. Thread-safe.
class HeaderLog {
 public:
  explicit HeaderLog(std::string key) : key_(std::move(key)) {}

  std::map<std::string, std::string> by_method() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return by_method_;
  }
  void Note(const std::string& method, const std::multimap<grpc::string_ref, grpc::string_ref>& all)
      EXCLUDES(mutex_) {
    const auto found = all.find(key_);
    MutexLock lock(&mutex_);
    by_method_[method] =
        found == all.end() ? "" : std::string(found->second.data(), found->second.size());
  }

 private:
  const std::string key_;
  Mutex mutex_;
  std::map<std::string, std::string> by_method_ GUARDED_BY(mutex_);
};

// Installs a HeaderLog in a server.
class HeaderLogFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit HeaderLogFactory(std::shared_ptr<HeaderLog> log) : log_(std::move(log)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new OfCall(info->method(), log_);
  }

 private:
  struct OfCall : grpc::experimental::Interceptor {
    OfCall(std::string method, std::shared_ptr<HeaderLog> log)
        : method(std::move(method)), log(std::move(log)) {}
    void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
      using Hook = grpc::experimental::InterceptionHookPoints;
      if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_INITIAL_METADATA))
        log->Note(method, *methods->GetRecvInitialMetadata());
      methods->Proceed();
    }
    const std::string method;
    const std::shared_ptr<HeaderLog> log;
  };

  const std::shared_ptr<HeaderLog> log_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_HEADER_LOG_H_
